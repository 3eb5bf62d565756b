package load

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

const (
	tries        = 4 // of a request without a final response
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second // a pause doubles up to it
	// defaultRetryAfter is the wait after a 429 without a time.
	defaultRetryAfter = time.Second
)

// job is one job as the API reads it.
type job struct {
	ID      string          `json:"id"`
	URL     string          `json:"url,omitempty"`
	Payload json.RawMessage `json:"payload"`

	Priority string `json:"priority,omitempty"`
	Flow     string `json:"flow,omitempty"`
}

// sender sends jobs and counts the results in a tally. It is safe for concurrent use.
type sender struct {
	opts    Options
	client  *http.Client
	payload json.RawMessage
	made    atomic.Int64 // jobs
	tally   *tally
	giveUp  context.CancelCauseFunc
}

func newSender(opts Options, transport http.RoundTripper, t *tally, giveUp context.CancelCauseFunc) *sender {
	client := &http.Client{
		Transport: transport, Timeout: opts.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &sender{
		opts: opts, client: client, tally: t, giveUp: giveUp,
		payload: json.RawMessage(`"` + strings.Repeat("x", opts.Size-MinSize) + `"`),
	}
}

// send sends n new jobs in one request, and repeats those without a final result, until every job has one.
func (s *sender) send(ctx context.Context, n int, intended time.Time) {
	jobs := make([]job, n)
	for i := range jobs {
		jobs[i] = job{ID: uuid.Must(uuid.NewV7()).String(), URL: s.opts.URL, Payload: s.payload, Priority: s.opts.Priority, Flow: s.opts.flowOf(s.made.Add(1) - 1)}
	}
	s.tally.sending(n)
	pause, resent := firstPause, false
	for try := 1; len(jobs) > 0; {
		answers := s.post(ctx, jobs)
		var again []job
		var after time.Duration
		failed, lost := false, false // lost requests count against tries
		for i, a := range answers {
			open := s.open(&a)
			final := !open
			if unclear(&a) {
				failed, lost = true, lost || !open
				final = !open && try >= tries || ctx.Err() != nil
			}
			if final {
				s.tally.count(&a, resent)
				continue
			}
			again = append(again, jobs[i])
			after = max(after, a.retryAfter)
		}
		if jobs = again; len(jobs) == 0 {
			break
		}
		switch {
		case failed:
			resent = true
			if lost {
				try++
			}
			after = max(after, pause)
			pause = min(2*pause, longestPause)
		case after == 0:
			after = defaultRetryAfter
		}
		if wait(ctx, after) != nil {
			for range jobs {
				s.tally.count(&answer{failure: failure(context.Canceled)}, false)
			}
			break
		}
	}
	s.tally.recordLatency(time.Since(intended))
	if why := s.tally.unanswered(); why != "" {
		s.giveUp(fmt.Errorf("%w at %s: %s", ErrUnreachable, s.opts.Server, why))
	}
}

// open reports whether the sender retries the job: the bucket is full for now, or Redis is away.
func (s *sender) open(a *answer) bool {
	return s.opts.Wait && (a.Status == http.StatusTooManyRequests || a.Status == http.StatusServiceUnavailable)
}

// unclear reports whether the job may or may not be enqueued, or the server could not decide: the same id again is harmless and may help.
func unclear(a *answer) bool {
	return a.failure != "" || a.Status == http.StatusServiceUnavailable
}

// post sends one request with the jobs and returns a result for each.
func (s *sender) post(ctx context.Context, jobs []job) []answer {
	resp, err := s.request(ctx, jobs)
	if err == nil {
		var answers []answer
		if answers, err = readAnswers(resp, len(jobs), time.Now()); err == nil {
			return answers
		}
	}
	answers := make([]answer, len(jobs))
	for i := range answers {
		answers[i].failure = failure(err)
	}
	return answers
}

func (s *sender) request(ctx context.Context, jobs []job) (*http.Response, error) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body) // one object a line: NDJSON
	for i := range jobs {
		if err := encoder.Encode(&jobs[i]); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.opts.endpoint(), &body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "tundish-load/1")
	if s.opts.Key != "" {
		req.Header.Set("Authorization", "Bearer "+s.opts.Key)
	}
	req.Header.Set("Content-Type", "application/json")
	if s.opts.Batch > 1 {
		req.Header.Set("Content-Type", "application/x-ndjson")
	}
	return s.client.Do(req)
}

// wait returns after d, or with an error when ctx ends before.
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
