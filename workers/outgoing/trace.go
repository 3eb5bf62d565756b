package outgoing

import (
	"context"
	"errors"
	"net/http"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// sendOn sends a request over a connection. If its context has a span, the request gets a span of its own below that one, of the kind client and by the
// same tracer. That span is the request's traceparent, and ends with the body of the response.
//
// The span begins after the permit was used, and waits for nothing: it moves a departure by some microseconds.
func sendOn(c *conn, req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return c.RoundTrip(req)
	}
	return traced.RoundTrip(req.WithContext(context.WithValue(ctx, connKey{}, c)))
}

// traced makes the spans. It counts no metrics: the dispatcher counts requests.
var traced = otelhttp.NewTransport(overConn{},
	otelhttp.WithPropagators(propagation.TraceContext{}),
	otelhttp.WithMeterProvider(noop.NewMeterProvider()),
	otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string { return r.Method }),
)

type connKey struct{}

// overConn sends a request over the connection in its context.
type overConn struct{}

var errNoConn = errors.New("outgoing: the request was not sent by this client: it has no network connection")

// RoundTrip implements [http.RoundTripper]. The span shows the origin only: the path and the query of a webhook's URL may be secrets.
func (overConn) RoundTrip(req *http.Request) (*http.Response, error) {
	c, ok := req.Context().Value(connKey{}).(*conn)
	if !ok {
		return nil, errNoConn
	}
	trace.SpanFromContext(req.Context()).SetAttributes(attribute.String("url.full", c.origin.String()))
	return c.RoundTrip(req)
}
