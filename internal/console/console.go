package console

import (
	"embed"
	"log/slog"
	"net/http"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/shaper/audit"
)

// Path is where the pages are.
const Path = "/console/"

//go:embed assets
var assets embed.FS

// Config is what the console needs.
type Config struct {
	Redis   redis.UniversalClient
	Name    string // of this installation, such as "production"
	Version string
	Logger  *slog.Logger
	Audit   *audit.Log // where logins are recorded; nil records none
}

// console serves the pages. It is safe for concurrent use.
type console struct {
	cfg      Config
	host     httpapi.PagesHost
	sessions sessions
	attempts attempts
}

// Pages returns the pages for [httpapi.OpsConfig].
func Pages(cfg Config) *httpapi.Pages {
	return &httpapi.Pages{Path: Path, Serve: func(host httpapi.PagesHost) http.Handler {
		c := &console{cfg: cfg, host: host, sessions: sessions{cfg.Redis}}
		return c.routes()
	}}
}

func (c *console) routes() http.Handler {
	mux := http.NewServeMux()
	page := func(pattern string, serve func(v *visit)) { mux.HandleFunc(pattern, c.visited(serve)) }
	page("GET /console/{$}", overview)
	page("GET /console/buckets/{bucket}", bucketPage)
	page("POST /console/buckets/{bucket}/do/{action}", changeBucket)
	page("GET /console/buckets/{bucket}/dead", deadPage)
	page("POST /console/buckets/{bucket}/dead/{action}", changeDead)
	page("GET /console/jobs", findJob)
	page("GET /console/schedules", schedulesPage)
	page("POST /console/schedules/{schedule}/{action}", changeSchedule)
	page("GET /console/pools", poolsPage)
	page("POST /console/pools/{pool}/{action}", changePool)
	page("GET /console/limits", limitsPage)
	page("GET /console/fleet", fleetPage)
	page("GET /console/audit", auditPage)
	page("GET /console/stream", stream)
	page("POST /console/logout", logout)
	mux.HandleFunc("GET /console/login", c.loginPage)
	mux.HandleFunc("POST /console/login", c.login)
	mux.Handle("GET /console/assets/", http.StripPrefix(Path, cached(http.FileServerFS(assets))))
	return secured(compressed(mux))
}

// policy lets a page use its own script and style alone, and be in no frame.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; " +
	"base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

func secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("Referrer-Policy", "same-origin") // without a referrer a form would have the origin null
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		next.ServeHTTP(w, r)
	})
}

// cached has browsers ask again now and then: the address of a file does not change with a version. A folder is no file.
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
