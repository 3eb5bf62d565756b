package outgoing

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net/http"
)

// Request is the request that a worker sends for an attempt.
type Request struct {
	Method string // "" is POST
	To     Target
	Header http.Header
	Body   []byte // none if it is empty
	Batch  bool   // it carries the jobs of a batch: see [workers.Policy.Outcomes]
}

// isKeyed reports whether the receiver can recognise a repeated request.
func (r *Request) isKeyed() bool {
	return r.Header.Get("Idempotency-Key") != "" || r.Header.Get("Webhook-Id") != ""
}

// http returns the request as net/http has it. Its GetBody is nil, so that net/http cannot send it again: it would do so
// unasked for a request with a header Idempotency-Key.
func (r *Request) http(ctx context.Context) *http.Request {
	req := new(http.Request).WithContext(ctx) // http.NewRequest would read the URL once more
	req.Method, req.URL, req.Header = cmp.Or(r.Method, http.MethodPost), r.To.URL, r.Header
	if len(r.Body) > 0 {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(r.Body)), int64(len(r.Body))
	}
	return req
}
