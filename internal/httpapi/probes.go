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
)

//go:embed openapi.yaml
var openAPI []byte

// Where load balancers and the like ask whether a server works.
const (
	livePath  = "/livez"
	readyPath = "/readyz"
)

// probes are the routes for machines that both servers have.
type probes struct {
	store    *pulse
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

// scrapeErrors logs what goes wrong with scrapes, once a minute: a scraper that has hung up is an error of each metric.
type scrapeErrors struct {
	log       *slog.Logger
	sometimes rate.Sometimes
}

func (e *scrapeErrors) Println(v ...any) {
	e.sometimes.Do(func() { e.log.Warn("a scrape of /metrics failed", "error", strings.TrimSpace(fmt.Sprintln(v...))) })
}

// livez answers as long as the process does. It does not ask Redis: a restart of this
// process does not bring Redis back.
func livez(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok\n") }

// readyz answers 200 if it is worth sending requests here: Redis answers and the
// process does not stop. The answer of Redis is kept for pulseAge. With ?verbose it
// lists the checks.
func (p *probes) readyz(w http.ResponseWriter, r *http.Request) {
	var list strings.Builder
	status := http.StatusOK
	check := func(name string, ok bool, why string) {
		if ok {
			fmt.Fprintf(&list, "[+]%s ok\n", name)
			return
		}
		fmt.Fprintf(&list, "[-]%s failed: %s\n", name, why)
		status = http.StatusServiceUnavailable
	}
	check("redis", p.store.beats(r.Context()), fmt.Sprintf("it gave no sign of life within %s", pingTimeout))
	check("serving", !p.draining.begun(), "the process stops")
	if status == http.StatusOK && !r.URL.Query().Has("verbose") {
		list.Reset()
	}
	if status == http.StatusOK {
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
