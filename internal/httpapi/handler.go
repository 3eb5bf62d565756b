package httpapi

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/shaper"
)

// Handler serves one of the APIs. It is safe for concurrent use.
type Handler struct {
	http.Handler
	draining *draining
	access   *access
	ops      *ops // nil of a producer without the operator's API

	connections int           // with requests, at a time
	idleTimeout time.Duration // of a connection without a request
}

// SetPools replaces the pools of the configuration, as operators see them from now on. It is safe at any time.
func (h *Handler) SetPools(pools []shaper.Pool) {
	if h.ops != nil {
		h.ops.pools.Store(&pools)
	}
}

// SetKeys replaces the API keys, for all requests from now on; without any,
// only programs of this machine are served. It is safe at any time.
func (h *Handler) SetKeys(keys []apikey.Key) {
	h.access.setKeys(keys)
	if h.ops != nil {
		h.ops.callers.Store(callersOf(keys))
	}
}

// Drain makes /readyz respond with 503 from now on, so load balancers send no new requests. Requests that arrive anyway are served, and none waits for a
// result any more. [Serve] calls it.
func (h *Handler) Drain() { h.draining.begin() }

// route is a method and a path of an API, in the grammar of http.ServeMux.
// Without a method it takes all of them.
type route struct {
	method, path string
	serve        http.HandlerFunc
	needs        rights
	op           *Described // nil where openapi.yaml is written by hand
}

// newHandler serves routes behind the handlers that all requests pass.
//
// elsewhere, if not nil, are the routes that the other program serves, by the name of that program.
func newHandler(routes []route, elsewhere map[string][]route, a *access, b *bounds, draining *draining, log *slog.Logger) *Handler {
	mux := http.NewServeMux()
	for _, r := range routes {
		serve := r.serve
		if r.path != livePath && r.path != readyPath { // probes are served even at the bound of requests
			serve = b.place(serve)
		}
		mux.HandleFunc(strings.TrimLeft(r.method+" "+r.path, " "), a.allow(r.needs, serve))
	}
	others := make(map[string]*http.ServeMux, len(elsewhere))
	for where, routes := range elsewhere {
		others[where] = http.NewServeMux()
		for _, r := range routes {
			others[where].HandleFunc(strings.TrimLeft(r.method+" "+r.path, " "), noHandler)
		}
	}
	return &Handler{Handler: observe(log, lastUnlessPlaced(limitUnread(a.guard(cutProxied(cutOriginal(orProblem(mux, others))))))), draining: draining, access: a, connections: b.places}
}

// noHandler is the handler of routes that need only a pattern.
func noHandler(http.ResponseWriter, *http.Request) {}

// orProblem serves the routes of mux, and turns its 404, its 405 and its redirects into problems. For a path that only another program serves, the
// problem names that program, and for an address that was removed the new one.
func orProblem(mux *http.ServeMux, others map[string]*http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		clean := isClean(r.URL.EscapedPath())
		other, pattern := mux.Handler(r)
		if pattern != "" && clean {
			mux.ServeHTTP(w, r)
			return
		}
		if now := newAddress(r); now != "" {
			newFault(codeUnknownRoute, "this address was removed, because the query names flows and groups: use %s %s", r.Method, now).write(w, r)
			return
		}
		if !clean {
			newFault(codeUnknownRoute, `the path has an empty part, "." or "..": percent-encode each name in it`).write(w, r)
			return
		}
		elsewhere := ""
		for where, routes := range others {
			if _, pattern := routes.Handler(r); pattern != "" {
				elsewhere = where
			}
		}
		answer := headerOnly{}
		other.ServeHTTP(answer, r)
		if allow := http.Header(answer).Get("Allow"); allow != "" {
			w.Header().Set("Allow", allow)
			hint := ""
			if elsewhere != "" {
				hint = fmt.Sprintf(" here; %s is served by %s", r.Method, elsewhere)
			}
			newFault(codeMethod, "%s takes %s%s", r.URL.EscapedPath(), allow, hint).write(w, r)
			return
		}
		if elsewhere != "" {
			newFault(codeUnknownRoute, "this path is served by %s", elsewhere).write(w, r)
			return
		}
		newFault(codeUnknownRoute, "the paths are listed in /openapi.yaml").write(w, r)
	})
}

// headerOnly is a response that keeps the header and drops the rest.
type headerOnly http.Header

func (h headerOnly) Header() http.Header         { return http.Header(h) }
func (h headerOnly) Write(b []byte) (int, error) { return len(b), nil }
func (h headerOnly) WriteHeader(int)             {}

var requestIDPattern = regexp.MustCompile(`^[A-Za-z0-9_.:/+=-]{1,128}$`)

// observe gives every request an id: the client's if it is valid, otherwise a new one. It logs the request at level debug and responds to a panic with
// 500. The text of a panic goes to the log only.
func observe(log *slog.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		started := time.Now()
		id := r.Header.Get("X-Request-Id")
		if !requestIDPattern.MatchString(id) {
			id = strings.ToLower(rand.Text())
		}
		r = r.WithContext(context.WithValue(r.Context(), requestIDKey{}, id))
		log := log.With("request_id", id, "method", r.Method, "path", r.URL.EscapedPath())
		h := w.Header()
		h.Set("X-Request-Id", id)
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		seen := &statusWriter{ResponseWriter: w}
		defer func() {
			if cause := recover(); cause != nil {
				if cause == http.ErrAbortHandler { //nolint:errorlint // the very value is meant
					panic(cause)
				}
				log.ErrorContext(r.Context(), "a request panicked", "panic", cause, "stack", string(debug.Stack()))
				if seen.status == 0 {
					newFault(codeInternal, "the log says more under the request id").write(seen, r)
				}
			}
			log.DebugContext(r.Context(), "request", "status", seen.status, "duration", time.Since(started))
		}()
		next.ServeHTTP(seen, r)
	})
}

// statusWriter records the status of the response; 0 means none yet.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func orDiscard(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return log
}
