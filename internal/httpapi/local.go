package httpapi

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"slices"

	"github.com/tundish-io/tundish/admission/httplimit"
)

// Local is an [http.RoundTripper] that has the operator's API answer in this process, whatever the address of a request. No
// request is refused for its caller.
type Local struct{ handler http.Handler }

// NewLocal returns the operator's API of a configuration, without its metrics and logs. author is the author of every change. The keys name
// callers, and none is asked for. A purge and a release of all flows take as long as they take.
func NewLocal(cfg OpsConfig, author string) Local {
	log := slog.New(slog.DiscardHandler)
	o := newOps(cfg.Buckets, cfg.Pools, cfg.Keys, author, log)
	o.local = true
	o.limits = limitOps{cfg.Limits, cfg.BucketLimits, o.store, log}
	a := newAccess(nil, httplimit.Proxies{})
	routes := slices.Concat(o.routes(), o.limits.routes(), o.oneJob().routes(), o.bundles().routes())
	return Local{newHandler(routes, nil, a, newBounds("", 0, 0, a.address), newDraining(), log)}
}

// RoundTrip answers a request. It returns no error.
func (l Local) RoundTrip(r *http.Request) (*http.Response, error) {
	in := r.Clone(r.Context())
	in.RemoteAddr, in.Host = "127.0.0.1:0", "localhost"
	if in.Body == nil {
		in.Body = http.NoBody
	}
	defer in.Body.Close()
	w := &memoryAnswer{header: http.Header{}, status: http.StatusOK}
	l.handler.ServeHTTP(w, in)
	return &http.Response{
		Status: http.StatusText(w.status), StatusCode: w.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: w.header,
		Body: io.NopCloser(&w.body), ContentLength: int64(w.body.Len()), Request: r,
	}, nil
}

// memoryAnswer is an answer that stays in memory.
type memoryAnswer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *memoryAnswer) Header() http.Header         { return w.header }
func (w *memoryAnswer) Write(b []byte) (int, error) { return w.body.Write(b) }
func (w *memoryAnswer) WriteHeader(status int)      { w.status = status }

type causeKey struct{}

// WithCause returns a context for requests to a [Local], and where it leaves the error of Redis that a request was answered 500 or
// 503 for. A server elsewhere leaves none there.
func WithCause(ctx context.Context) (context.Context, *error) {
	var err error
	return context.WithValue(ctx, causeKey{}, &err), &err
}
