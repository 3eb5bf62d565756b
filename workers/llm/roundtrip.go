package llm

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/outgoing"
)

var _ http.RoundTripper = (*Transport)(nil)

// HeaderJob is the response header that names the job.
const HeaderJob = "Tundish-Job"

// ExpiryMargin is how much later a job expires than its caller gives up. The job becomes a dead letter only if the process that cancels it has died.
const ExpiryMargin = time.Second

// RoundTrip waits for a permit, sends the request and returns the API's response, whose header Tundish-Job names the job. It returns the errors of
// [Transport.Send]. Turn off the retries of provider clients, which retry most errors: Tundish waits already.
//
// The URL of a request has to lie below the base URL of the worker. The worker's credentials replace the request's own.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := readAll(r.Body)
	if err != nil {
		return nil, fmt.Errorf("bucket %q: read the body of the request: %w", t.Bucket, err)
	}
	address, err := t.Worker.below(r)
	if err != nil {
		return nil, fmt.Errorf("bucket %q: %w", t.Bucket, err)
	}
	ask := t.Worker.Ask(address, body)
	wait := cmp.Or(t.Wait, DefaultWait)
	job := shaper.Job{
		Bucket: t.Bucket, Method: r.Method, URL: address, Headers: t.Worker.passedOn(r.Header), Payload: ask.Body, Units: ask.Units,
		MaxWait: wait, ExpiresIn: wait + ExpiryMargin,
	}
	if t.Prepare != nil {
		t.Prepare(r, &job)
	}
	if err := t.Worker.CheckCall(&job); err != nil {
		return nil, fmt.Errorf("bucket %q: %w", t.Bucket, err)
	}
	waits, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	answer, err := t.Send(r.Context(), waits, job, ask)
	if err != nil {
		return nil, err
	}
	header := answer.Header.Clone()
	header.Del("Content-Length") // the chunk with the usage may be removed
	header.Set(HeaderJob, answer.JobID)
	return &http.Response{
		Status: fmt.Sprintf("%d %s", answer.Status, http.StatusText(answer.Status)), StatusCode: answer.Status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: &answerBody{answer: answer}, ContentLength: -1, Request: r,
	}, nil
}

// readAll reads a body and closes it, as a RoundTripper has to.
func readAll(body io.ReadCloser) ([]byte, error) {
	if body == nil {
		return nil, nil
	}
	defer body.Close()
	return io.ReadAll(body)
}

// below is the path and the query of a request below the base URL.
func (w *Worker) below(r *http.Request) (string, error) {
	base, err := outgoing.ParseURL(w.config.HTTP.BaseURL)
	if err != nil {
		return "", fmt.Errorf("%s.base_url: %w", table, err)
	}
	origin, err := shaper.OriginOf(r.URL)
	path, isBelow := strings.CutPrefix(r.URL.EscapedPath(), strings.TrimSuffix(base.URL.EscapedPath(), "/"))
	if err != nil || !base.Is(origin) || !isBelow || !strings.HasPrefix(path, "/") {
		return "", fmt.Errorf("the request to %s://%s%s is not below the %s.base_url %s: give the client a base URL that is", r.URL.Scheme, r.URL.Host, r.URL.EscapedPath(), table, base.URL)
	}
	if r.URL.RawQuery != "" {
		path += "?" + r.URL.RawQuery
	}
	return path, nil
}

// passedOn are the headers of a request that go to the API.
func (w *Worker) passedOn(h http.Header) map[string][]string {
	passed := h.Clone()
	for _, name := range w.Credentials() {
		passed.Del(name)
	}
	return passed
}

// answerBody reads a response.
type answerBody struct {
	answer *Answer
	part   []byte
}

func (b *answerBody) Read(p []byte) (int, error) {
	if len(b.part) == 0 {
		part, err := b.answer.Next()
		if err != nil {
			return 0, err
		}
		b.part = part
	}
	n := copy(p, b.part)
	b.part = b.part[n:]
	return n, nil
}

func (b *answerBody) Close() error { return b.answer.Close() }
