package httpapi

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"slices"

	"github.com/tundish-io/tundish/admission/httplimit"
	"github.com/tundish-io/tundish/internal/apikey"
)

// Local is an [http.RoundTripper] that serves requests by the operator's API in this process, whatever their address. It accepts every caller.
type Local struct{ handler http.Handler }

// NewLocal returns the operator's API of a configuration, without its metrics and logs. author is the author of every change. The keys name callers, and
// requests need none. A purge and a release of all flows have no time bound.
func NewLocal(cfg OpsConfig, author string) Local {
	log := slog.New(slog.DiscardHandler)
	draining := newDraining()
	o := newOps(cfg.Buckets, cfg.Pools, cfg.Keys, author, draining, log)
	o.local = true
	o.limits, o.callbacks = limitOps{cfg.Limits, cfg.BucketLimits, o.store, log}, cfg.CheckCallbacks
	a := newAccess(nil, httplimit.Proxies{}, log, nil, nil)
	a.currentName = func(bucket string) string { return cfg.Buckets.CurrentName(bucket) }
	o.access, o.sessions, o.keys = a, cfg.Sessions, apikey.NewRing(cfg.Keys)
	rec := newRecorder(o, o.records, author, func(*http.Request) string { return "" }, log)
	routes := rec.routes(slices.Concat(o.routes(), o.limits.routes(), o.oneJob().routes(), o.bundles().routes()), true)
	return Local{newHandler(routes, nil, a, newBounds("", 0, 0, a.address), draining, log)}
}

// RoundTrip serves a request. It returns no error. A flushed response is a stream: the handler goes on until the reader closes it, or the request's
// context ends.
func (l Local) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	in := r.Clone(ctx)
	in.RemoteAddr, in.Host = "127.0.0.1:0", "localhost"
	if in.Body == nil {
		in.Body = http.NoBody
	}
	w := &memoryAnswer{header: http.Header{}, status: http.StatusOK, flushed: make(chan struct{})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer cancel()
		defer in.Body.Close()
		l.handler.ServeHTTP(w, in)
		if w.stream != nil {
			_ = w.stream.Close() // never an error
		}
	}()
	answer := &http.Response{Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: w.header, Request: r}
	select {
	case <-ended:
		answer.Body, answer.ContentLength = io.NopCloser(&w.body), int64(w.body.Len())
	case <-w.flushed:
		answer.Body, answer.ContentLength = streamBody{w.reader, cancel, ended}, -1
	}
	answer.Status, answer.StatusCode = http.StatusText(w.status), w.status
	return answer, nil
}

// streamBody is the body of a response whose handler goes on.
type streamBody struct {
	*io.PipeReader

	cancel context.CancelFunc
	ended  <-chan struct{}
}

func (b streamBody) Close() error {
	b.cancel()
	err := b.PipeReader.Close()
	<-b.ended
	return err
}

// memoryAnswer is a response that stays in memory until it is flushed.
type memoryAnswer struct {
	header  http.Header
	status  int
	body    bytes.Buffer
	flushed chan struct{}
	reader  *io.PipeReader
	stream  *io.PipeWriter // of the bytes after the first flush, nil before
}

func (w *memoryAnswer) Header() http.Header    { return w.header }
func (w *memoryAnswer) WriteHeader(status int) { w.status = status }

func (w *memoryAnswer) Write(b []byte) (int, error) {
	if w.stream != nil {
		return w.stream.Write(b)
	}
	return w.body.Write(b)
}

// FlushError makes the bytes so far, and all later ones, available to the reader.
func (w *memoryAnswer) FlushError() error {
	if w.stream != nil {
		return nil
	}
	w.reader, w.stream = io.Pipe()
	close(w.flushed)
	_, err := w.stream.Write(w.body.Bytes())
	return err
}

type causeKey struct{}

// WithCause returns a context for requests to a [Local], and a pointer to the Redis error behind a response of 500 or 503. A remote server sets no
// error.
func WithCause(ctx context.Context) (context.Context, *error) {
	var err error
	return context.WithValue(ctx, causeKey{}, &err), &err
}
