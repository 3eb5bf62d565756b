package httpapi

import (
	"cmp"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// SinkPath is the path of the sink.
const SinkPath = "/sink"

// sink is a receiver for trying things out. It logs each request with the time since the previous one, and responds with 200, the method and the path.
// It is for programs of this machine: deliveries show no key.
type sink struct {
	log *slog.Logger

	mu   sync.Mutex
	last time.Time
}

func (s *sink) routes() []route {
	return []route{{"", SinkPath, s.receive, rights{local: true}, nil}, {"", SinkPath + "/{path...}", s.receive, rights{local: true}, nil}}
}

// NewSink returns a server that is only a sink: it receives every request but GET /readyz, from any machine, and has no keys.
func NewSink(log *slog.Logger) *Handler {
	draining := newDraining()
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+readyPath, func(w http.ResponseWriter, _ *http.Request) {
		if draining.begun() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("/", (&sink{log: orDiscard(log)}).receive)
	return &Handler{Handler: mux, draining: draining, connections: maxSinkConnections}
}

// maxSinkConnections is far above what dispatchers open to try things out.
const maxSinkConnections = 10000

func (s *sink) receive(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	s.mu.Lock()
	since := time.Duration(0)
	if !s.last.IsZero() {
		since = now.Sub(s.last)
	}
	s.last = now
	s.mu.Unlock()
	setReadDeadline(w, readTimeout)
	payload, err := io.ReadAll(io.LimitReader(r.Body, maxSinkPayload))
	if err != nil {
		newFault(codeInvalid, "the body could not be read").write(w, r)
		return
	}
	s.log.InfoContext(r.Context(), "arrived", "job", cmp.Or(r.Header.Get("webhook-id"), r.Header.Get("Idempotency-Key")),
		"attempt", r.Header.Get("tundish-attempt"), "method", r.Method, "path", r.URL.Path, "query", r.URL.RawQuery,
		"after_the_last", since.Round(100*time.Microsecond), "payload", string(payload))
	writeJSON(w, http.StatusOK, map[string]string{"method": r.Method, "path": r.URL.Path})
}

// maxSinkPayload is how much of a payload is logged.
const maxSinkPayload = 200
