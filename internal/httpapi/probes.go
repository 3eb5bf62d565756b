package httpapi

import (
	_ "embed"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/time/rate"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/redisconn"
)

//go:embed openapi.yaml
var openAPI []byte

// The paths at which load balancers probe a server.
const (
	livePath  = "/livez"
	readyPath = "/readyz"
)

// probes are the routes for machines that both servers have.
type probes struct {
	store *pulse

	servesAlone func() bool // see ProducerConfig; nil means no

	draining *draining
	gatherer prometheus.Gatherer
	log      *slog.Logger

	exemplars bool
}

func (p *probes) routes() []route {
	gatherer := p.gatherer
	if gatherer == nil {
		gatherer = prometheus.NewRegistry()
	}
	options := promhttp.HandlerOpts{
		EnableOpenMetrics: p.exemplars, // only that format has them
		ErrorLog:          &scrapeErrors{log: p.log, sometimes: rate.Sometimes{First: 1, Interval: time.Minute}}, ErrorHandling: promhttp.ContinueOnError,
	}
	return []route{
		{"GET", livePath, livez, rights{}, nil},
		{"GET", readyPath, p.readyz, rights{}, nil},
		{"GET", "/metrics", promhttp.HandlerFor(gatherer, options).ServeHTTP, roles(apikey.RoleRead), nil},
		{"GET", "/openapi.yaml", serveOpenAPI, rights{}, nil},
		bind(nil, ShowVersion, showVersion),
	}
}

// scrapeErrors logs the errors of scrapes, once a minute: a scraper that has hung up causes an error of each metric.
type scrapeErrors struct {
	log       *slog.Logger
	sometimes rate.Sometimes
}

func (e *scrapeErrors) Println(v ...any) {
	e.sometimes.Do(func() { e.log.Warn("a scrape of /metrics failed", "error", strings.TrimSpace(fmt.Sprintln(v...))) })
}

// livez responds with 200 while the process runs. It does not ask Redis: a restart of this process does not bring Redis back.
func livez(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok\n") }

// readyz responds with 200 if the process can do part of its work, and does not stop. If Redis fails, the process is not ready, with two exceptions: it
// still serves limits that are open or local while Redis fails, and with a full Redis jobs can still be read and delivered. Every process is in the same
// state then, so taking all of them out of service would not help. The body names the failure. The result of a probe is kept for pulseAge. With ?verbose
// the body lists the checks.
func (p *probes) readyz(w http.ResponseWriter, r *http.Request) {
	var list strings.Builder
	status, degraded := http.StatusOK, ""
	check := func(name string, ok bool, why string) {
		if ok {
			fmt.Fprintf(&list, "[+]%s ok\n", name)
			return
		}
		fmt.Fprintf(&list, "[-]%s failed: %s\n", name, why)
		status = http.StatusServiceUnavailable
	}
	failure := p.store.check(r.Context())
	switch {
	case failure == redisconn.Full:
		degraded = failure.Description() + ", so no job is stored"
	case failure != redisconn.NoFailure && p.servesAlone != nil && p.servesAlone():
		degraded = failure.Description() + ", so only limits with on_store_failure = open or local are served"
	default:
		check("redis", failure == redisconn.NoFailure, failure.Description())
	}
	if degraded != "" {
		fmt.Fprintf(&list, "[!]redis degraded: %s\n", degraded)
	}
	check("serving", !p.draining.begun(), "the process stops")
	if status == http.StatusOK && !r.URL.Query().Has("verbose") {
		list.Reset()
	}
	switch {
	case status != http.StatusOK:
	case degraded != "" && list.Len() == 0:
		fmt.Fprintf(&list, "ok, degraded: %s\n", degraded)
	default:
		list.WriteString("ok\n")
	}
	writeText(w, status, list.String())
}

func serveOpenAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(openAPI)
}

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text))
}
