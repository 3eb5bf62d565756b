package console

import (
	"embed"
	"log/slog"
	"net/http"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission/httplimit"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/session"
	"github.com/tundish-io/tundish/shaper/audit"
)

// Path is the path of the pages.
const Path = "/console/"

//go:embed assets
var assets embed.FS

// Config is what the console needs.
type Config struct {
	Redis   redis.UniversalClient
	Name    string // of this installation, such as "production"
	Colour  string // of the mark next to the name: red, orange, green, blue; "" has none
	Version string
	Logger  *slog.Logger
	Audit   *audit.Log // where logins are recorded; nil records none

	// Proxies are believed on their client's address, and on its user.
	Proxies httplimit.Proxies

	// UserHeader is the header that a trusted proxy sends with its user's name; the user has the rights of the key UserKey. "" asks every visitor for a
	// key.
	UserHeader, UserKey string

	// Origin is the origin by which browsers reach the console, such as "https://ops.example.com", if a proxy rewrites Host.
	Origin string

	HidePayloads bool // from keys that only read
}

// console serves the pages. It is safe for concurrent use.
type console struct {
	cfg      Config
	host     httpapi.PagesHost
	sessions *session.Store
	attempts attempts // of wrong keys, by address
	logins   attempts // by key
}

// Pages returns the pages for [httpapi.OpsConfig].
func Pages(cfg Config) *httpapi.Pages {
	return &httpapi.Pages{Path: Path, Origins: origins(&cfg), Serve: func(host httpapi.PagesHost) http.Handler {
		c := &console{cfg: cfg, host: host, sessions: session.New(cfg.Redis)}
		return c.routes()
	}}
}

// origins accepts forms of the origin by which browsers reach the console.
func origins(cfg *Config) *http.CrossOriginProtection {
	protection := http.NewCrossOriginProtection()
	if cfg.Origin == "" {
		return protection
	}
	if err := protection.AddTrustedOrigin(cfg.Origin); err != nil {
		cfg.Logger.Error("the console takes forms of its own origin only", "origin", cfg.Origin, "error", err)
	}
	return protection
}

// forVisitors are the pages and actions that need a known visitor.
var forVisitors = []struct {
	pattern string
	serve   func(v *visit)
}{
	{"GET /console/{$}", overview},
	{"GET /console/buckets/{bucket}", bucketPage},
	{"POST /console/buckets/{bucket}/do/{action}", changeBucket},
	{"GET /console/buckets/{bucket}/dead", deadPage},
	{"POST /console/buckets/{bucket}/dead/{action}", changeDead},
	{"GET /console/buckets/{bucket}/dead/all/{action}", askDead},
	{"POST /console/buckets/{bucket}/dead/all/{action}", stepDead},
	{"GET /console/buckets/{bucket}/purge", askPurge},
	{"POST /console/buckets/{bucket}/purge", purge},
	{"GET /console/buckets/{bucket}/jobs", jobList},
	{"POST /console/buckets/{bucket}/jobs/cancel", cancelJob},
	{"GET /console/buckets/{bucket}/flows", flowsPage},
	{"GET /console/buckets/{bucket}/flow", flowPage},
	{"POST /console/buckets/{bucket}/flow/{action}", changeFlow},
	{"GET /console/buckets/{bucket}/groups", groupsPage},
	{"POST /console/buckets/{bucket}/groups/{action}", changeGroup},
	{"GET /console/buckets/{bucket}/timetable", calendarPage},
	{"GET /console/jobs", findJob},
	{"GET /console/schedules", schedulesPage},
	{"POST /console/schedules/{schedule}/{action}", changeSchedule},
	{"GET /console/pools", poolsPage},
	{"POST /console/pools/{pool}/{action}", changePool},
	{"GET /console/limits", limitsPage},
	{"GET /console/fleet", fleetPage},
	{"GET /console/audit", auditPage},
	{"GET /console/sessions", sessionsPage},
	{"POST /console/sessions/{id}/end", endSession},
	{"GET /console/stream", stream},
	{"POST /console/logout", logout},
}

// forAll is served to every client that the server accepts.
var forAll = []struct {
	pattern string
	serve   func(c *console, w http.ResponseWriter, r *http.Request)
}{
	{"GET /console/login", (*console).loginPage},
	{"POST /console/login", (*console).login},
	{"GET /console/assets/", func(_ *console, w http.ResponseWriter, r *http.Request) { files.ServeHTTP(w, r) }},
}

// files are the files that pages name.
var files = http.StripPrefix(Path, cached(http.FileServerFS(assets)))

func (c *console) routes() http.Handler {
	mux := http.NewServeMux()
	for _, route := range forVisitors {
		mux.HandleFunc(route.pattern, c.visited(route.serve))
	}
	for _, route := range forAll {
		mux.HandleFunc(route.pattern, func(w http.ResponseWriter, r *http.Request) { route.serve(c, w, r) })
	}
	return secured(compressed(mux))
}

// policy lets a page use only its own script and style, and be in no frame.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; " +
	"base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// maxForm bounds a form, in bytes. The longest has a filter and a reason.
const maxForm = 64 << 10

func secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("Referrer-Policy", "same-origin") // without a referrer a form would have the origin null
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		next.ServeHTTP(w, r)
	})
}

// cached makes browsers revalidate now and then: the address of a file does not change with a version. A folder is no file.
func cached(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/") {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Cache-Control", "max-age=300")
		next.ServeHTTP(w, r)
	})
}
