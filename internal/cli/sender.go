package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/shaper"
)

const (
	sendTimeout = 30 * time.Second
	maxAnswer   = 1 << 20
)

// jobRequest is a job in the form of the API.
type jobRequest struct {
	ID      string              `json:"id,omitempty"`
	Flow    string              `json:"flow,omitempty"`
	Group   string              `json:"group,omitempty"`
	URL     string              `json:"url,omitempty"`
	Method  string              `json:"method,omitempty"`
	Headers map[string][]string `json:"headers,omitempty"`
	Payload json.RawMessage     `json:"payload,omitempty"` // valid JSON, which pack keeps byte for byte
	Cost    any                 `json:"cost,omitempty"`    // a number, or amounts by unit
	Delay   string              `json:"delay,omitempty"`

	ExpiresIn string `json:"expires_in,omitempty"`
	Priority  string `json:"priority,omitempty"`
	Bundle    string `json:"bundle,omitempty"`

	// Of a job for an API.
	Path        string `json:"path,omitempty"`
	Query       string `json:"query,omitempty"`
	Body        string `json:"body,omitempty"` // instead of a payload
	ContentType string `json:"content_type,omitempty"`
}

// pack writes the request. It does not encode the payload as JSON again, which would drop its spaces and escape characters of HTML: receivers check
// signatures over these bytes.
func (j jobRequest) pack() ([]byte, error) {
	payload := j.Payload
	j.Payload = nil
	body, err := json.Marshal(j)
	if err != nil || len(payload) == 0 {
		return body, err
	}
	body = append(body[:len(body)-1], `,"payload":`...) // there is an id in front
	return append(append(body, payload...), '}'), nil
}

// answer is the API's response for a job: 202, or a problem.
type answer struct {
	Status    int          `json:"status"`
	ID        string       `json:"id"`
	Bucket    string       `json:"bucket"`
	State     shaper.State `json:"state"`
	Position  int64        `json:"position"`
	ETA       time.Time    `json:"eta"`
	Duplicate bool         `json:"duplicate"`

	Code       string `json:"code"`
	Title      string `json:"title"`
	Detail     string `json:"detail"`
	RetryAfter int64  `json:"retry_after"` // seconds
	Errors     []struct {
		Field  string `json:"field"`
		Reason string `json:"reason"`
	} `json:"errors"`

	raw json.RawMessage // in one line
}

// notJSON stands for the response to a line that was not even sent.
var notJSON = &answer{
	Status: http.StatusBadRequest, Code: "invalid", Detail: "the line is not JSON",
	raw: json.RawMessage(`{"status":400,"code":"invalid","detail":"the line is not JSON"}`),
}

// in reports whether the job is admitted, now or before.
func (a *answer) in() bool { return a.Status == http.StatusAccepted || a.ended() }

// ended reports whether the response is the result of the job.
func (a *answer) ended() bool { return a.Status == http.StatusOK && a.State != "" }

func (a *answer) exitCode() int {
	switch a.Status {
	case http.StatusAccepted, http.StatusOK:
		return exitDone
	case http.StatusTooManyRequests:
		return exitRefused
	case http.StatusNotFound:
		return exitNotFound
	case http.StatusServiceUnavailable:
		return exitUnreachable
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden:
		return exitUsage
	}
	return exitFailed
}

// endsIt reports whether the next job would get the same response.
func (a *answer) endsIt() bool {
	switch a.Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusServiceUnavailable:
		return true
	}
	return false
}

// line formats the response in one line for people.
func (a *answer) line(now time.Time) string {
	if !a.in() {
		return "refused  " + a.refusal()
	}
	text := fmt.Sprintf("%-9s %s", a.State, a.ID)
	if a.Duplicate {
		return text + "  duplicate: the job was there already"
	}
	if a.State == shaper.StateQueued {
		text += fmt.Sprintf("  position %d", a.Position)
	}
	switch {
	case a.State == shaper.StateQueued && a.ETA.IsZero():
		text += fmt.Sprintf("  no time is known: `dispatcher job show %s %s` says why", a.Bucket, a.ID)
	case !a.ETA.IsZero():
		leaves := relative(later(a.ETA, now), now)
		if leaves == relative(now, now) {
			leaves += " at the earliest" // it may wait for others of its batch, which the receipt does not have
		}
		if a.Position > 0 { // the usage of jobs ahead of it is estimated
			leaves = strings.Replace(leaves, "in ", "in about ", 1)
		}
		text += fmt.Sprintf("  leaves %s (%s)", leaves, stamp(a.ETA))
	}
	return text
}

// later is the later of two instants.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// refusal returns why the job was not admitted, and when to retry.
func (a *answer) refusal() string {
	if a.Code == "" {
		return a.reason()
	}
	return a.Code + ": " + a.reason()
}

// reason is a refusal without its code.
func (a *answer) reason() string {
	text := a.Detail
	if text == "" {
		text = a.Title
	}
	if len(a.Errors) > 1 { // with one, the detail has it
		for _, e := range a.Errors {
			text += fmt.Sprintf("; %s: %s", e.Field, e.Reason)
		}
	}
	if a.RetryAfter > 0 && !strings.Contains(text, "retry in") {
		text += fmt.Sprintf("; retry in %s", human(time.Duration(a.RetryAfter)*time.Second))
	}
	if a.Status == http.StatusServiceUnavailable && a.ID != "" {
		text += "; whether the job is in is unknown: send it again with --id " + a.ID
	}
	if a.Status == http.StatusUnauthorized {
		text += "; the key is taken from --key, TUNDISH_KEY or TUNDISH_KEY_FILE"
	}
	if a.Status == http.StatusBadRequest && strings.Contains(text, "is named by the header") {
		text += `: producer send has --request-header "Name: value"`
	}
	return line(text, 500)
}

// sender sends jobs to one bucket.
type sender struct {
	http           *http.Client
	server, bucket string
	key            config.Secret       // "" without one
	header         map[string][]string // of each request, besides its own
	wait           bool
	result         time.Duration // how long a job's end is waited for; 0: not at all
	note           func(format string, args ...any)
	newID          func() (string, error)
	pause          func(context.Context, time.Duration) error
}

// send sends a request to enqueue a job. A refusal is a response. With s.wait, send waits and retries as long as the server names a time, instead of
// returning the refusal. An error means that there is no server, or that it did not respond.
func (s *sender) send(ctx context.Context, job jobRequest) (*answer, error) {
	if job.ID == "" {
		id, err := s.newID()
		if err != nil {
			return nil, fmt.Errorf("make an id: %w", err)
		}
		job.ID = id
	}
	body, err := job.pack()
	if err != nil {
		return nil, fmt.Errorf("pack job %q: %w", job.ID, err)
	}
	waited := ""
	for {
		answer, err := s.post(ctx, job.ID, body)
		if err != nil {
			return nil, err
		}
		again := answer.Status == http.StatusTooManyRequests || answer.Status == http.StatusServiceUnavailable
		if !s.wait || !again || answer.RetryAfter < 1 {
			return answer, nil
		}
		if waited != answer.Code {
			waited = answer.Code
			s.note("waiting: %s", answer.refusal())
		}
		if err := s.pause(ctx, time.Duration(answer.RetryAfter)*time.Second); err != nil {
			return nil, err
		}
	}
}

func (s *sender) post(ctx context.Context, id string, body []byte) (*answer, error) {
	return s.postTo(ctx, "/jobs", "application/json", id, body)
}

// postTo posts to an address of the bucket. id is the job's, "" for several jobs.
func (s *sender) postTo(ctx context.Context, path, kind, id string, body []byte) (*answer, error) {
	target := s.server + "/v1/buckets/" + url.PathEscape(s.bucket) + path
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return nil, fail(exitUsage, "--server %q is not an address: %w", s.server, err)
	}
	for name, values := range s.header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	req.Header.Set("Content-Type", kind)
	if s.key != "" {
		req.Header.Set("Authorization", "Bearer "+s.key.Reveal())
	}
	if s.result > 0 {
		req.Header.Set("Prefer", "wait="+strconv.Itoa(int(s.result/time.Second)))
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return nil, s.explain(ctx, id, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, s.explain(ctx, id, err)
	}
	a := &answer{}
	var raw bytes.Buffer
	if json.Unmarshal(text, a) != nil || json.Compact(&raw, text) != nil || id != "" && a.Status == 0 && a.ID == "" {
		return nil, fail(exitUnreachable, "%s answers %s, but not as Tundish does: is --server right?", s.server, resp.Status)
	}
	a.raw = raw.Bytes()
	if a.Status = resp.StatusCode; a.ended() {
		a.ID = id
	}
	if a.ID == "" {
		a.ID = id
	}
	if a.Code == "unknown-bucket" {
		a.Detail += unknownAt(s.server)
	}
	if seconds, err := strconv.ParseInt(resp.Header.Get("Retry-After"), 10, 32); err == nil {
		a.RetryAfter = seconds
	}
	return a, nil
}

// unknownAt ends a sentence about a bucket that a server does not know.
func unknownAt(server string) string {
	return fmt.Sprintf(" at %s: is the name right, and --server?", server)
}

// explain explains what to do without a response.
func (s *sender) explain(ctx context.Context, id string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err = withoutURL(err); isDial(err) {
		return fail(exitUnreachable, "no server at %s (%w): start one with `dispatcher run` (embedded store) or `producer serve`, "+
			"or name another with --server", s.server, err)
	}
	if id == "" {
		return fail(exitUnreachable, "%s gave no answer (%w): whether these jobs are in is unknown; send them again, and they are the same jobs", s.server, err)
	}
	return fail(exitUnreachable, "%s gave no answer (%w): whether the job is in is unknown; send it again with --id %s", s.server, err, id)
}

// withoutURL returns an error of a request without the address, which is in the text already.
func withoutURL(err error) error {
	if urlErr, ok := errors.AsType[*url.Error](err); ok {
		return urlErr.Err
	}
	return err
}

// isDial reports whether an error means that there is no server.
func isDial(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// newHTTPClient returns a client of the API.
func newHTTPClient(timeout time.Duration) *http.Client {
	return &http.Client{
		Timeout:       timeout,
		Transport:     &http.Transport{ResponseHeaderTimeout: timeout}, // no proxy: the API is on this machine or network
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// pause waits, or returns early with the reason why ctx ended.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
