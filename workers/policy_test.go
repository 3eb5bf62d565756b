package workers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

const (
	done, retry, dead, held = shaper.ResultDone, shaper.ResultRetry, shaper.ResultDead, shaper.ResultHeld

	nothing, accepted, throttled, failed = shaper.SignalNone, shaper.SignalAccepted, shaper.SignalThrottled, shaper.SignalFailed
)

// listed is the other list of statuses that docs/responses.md shows.
var listed = Policy{Statuses: []string{"408", "425", "429", "5xx"}, Hold: true}

// answers are the kinds of responses, apart from their headers. docs/responses.md shows those with a name.
var answers = []struct {
	name     string
	statuses []int
	wait     time.Duration // that the response names

	any, listed shaper.Result
	reason      string // %d is the status
	signal      shaper.Signal
}{
	{"2xx", []int{200, 202, 204, 299}, 0, done, done, "", accepted},
	{"207, or JSON with `\"errors\": true` ([parts](response-rules.md#parts-of-a-request))", []int{207}, 0, dead, dead, "partial", accepted},
	{"3xx", []int{300, 301, 304, 307, 399}, 0, retry, dead, "redirect", accepted},
	{"400, 401, 403, 404, 409, 413, 415, 422", []int{400, 401, 403, 404, 409, 413, 415, 422}, 0, retry, dead, "http_%d", accepted},
	{"408, 425", []int{408, 425}, 0, retry, retry, "http_%d", accepted},
	{"410", []int{410}, 0, dead, dead, "gone", accepted},
	{"", []int{410}, time.Minute, dead, dead, "gone", accepted},
	{"any other 4xx", []int{402, 405, 418, 451, 499}, 0, retry, dead, "http_4xx", accepted},
	{"429, 503, 529", []int{429, 503, 529}, 0, retry, retry, "http_%d", throttled},
	{"500, 502, 504", []int{500, 502, 504}, 0, retry, retry, "http_%d", failed},
	{"any other 5xx", []int{501, 505, 520, 599}, 0, retry, retry, "http_5xx", failed},
	{"a status outside 200 to 599, which counts as a 5xx", []int{0, 101, 199, 600, 999}, 0, retry, retry, "http_other", failed},
	{"a 4xx or 5xx other than 410 that [names a time](#times-that-a-response-names)", ownReason, time.Minute, held, held, "http_%d", throttled},
	{"", []int{402, 405, 418, 420, 451, 499}, time.Minute, held, held, "http_4xx", throttled},
	{"", []int{501, 509, 520, 598, 599}, time.Minute, held, held, "http_5xx", throttled},
}

// namedWait is a form in which a response from 400 on names a time, at noon.
type namedWait struct {
	header string
	want   time.Duration // 0: no time
}

// namedWaits are the forms that docs/responses.md shows.
var namedWaits = []namedWait{
	{"Retry-After: 120", 2 * time.Minute},
	{"Retry-After: Sun, 01 Mar 2026 12:00:30 GMT", 30 * time.Second},
	{"Retry-After: 2026-03-01T13:00:30+01:00", 30 * time.Second},
	{"Retry-After: 1772366430", 30 * time.Second},
	{"Retry-After: 6m0s", 6 * time.Minute},
	{"Retry-After: 1\nRetry-After-Ms: 250", 250 * time.Millisecond},
	{`RateLimit: "burst";r=0;t=5`, 5 * time.Second},
	{"RateLimit: limit=100, remaining=0, reset=5", 5 * time.Second},
	{"X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 5", 5 * time.Second},
	{"x-ratelimit-remaining-requests: 0\nx-ratelimit-reset-requests: 6m0s", 6 * time.Minute},
	{"anthropic-ratelimit-requests-remaining: 0\nanthropic-ratelimit-requests-reset: 2026-03-01T12:00:30Z", 30 * time.Second},
}

// furtherWaits are more forms, and headers that name no time.
var furtherWaits = []namedWait{
	{"RateLimit-Remaining: 0\nRateLimit-Reset: 5", 5 * time.Second},
	{"Retry-After: 1.5", 1500 * time.Millisecond},
	{`RateLimit: "burst";r=0;t=5, "daily";r=0;t=3600, "other";r=3;t=9000`, time.Hour},
	{"X-Rate-Limit-Remaining: 0\nX-Rate-Limit-Reset: 1772366430", 30 * time.Second},
	{"X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1772366430", 30 * time.Second},
	{"X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1772366400250", 250 * time.Millisecond},
	{"x-ratelimit-remaining-tokens: 0\nx-ratelimit-reset-tokens: 20ms", 20 * time.Millisecond},
	{"x-ratelimit-remaining-project-tokens: 0\nx-ratelimit-reset-project-tokens: 6m0s", 6 * time.Minute},
	{"anthropic-ratelimit-tokens-remaining: 0\nanthropic-ratelimit-tokens-reset: 2026-03-01T12:00:30Z", 30 * time.Second},
	{"anthropic-ratelimit-input-tokens-remaining: 0\nanthropic-ratelimit-input-tokens-reset: 2026-03-01T12:00:30Z", 30 * time.Second},
	{"anthropic-ratelimit-output-tokens-remaining: 0\nanthropic-ratelimit-output-tokens-reset: 2026-03-01T12:00:30Z", 30 * time.Second},
	{"Retry-After: 1\nRateLimit: \"burst\";r=0;t=60", time.Second},
	{"Retry-After: soon\nRateLimit: \"burst\";r=0;t=60", time.Minute},
	{"RateLimit: \"burst\";r=3;t=60\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 5", 5 * time.Second},
	{"x-ratelimit-remaining-requests: 0\nx-ratelimit-reset-requests: 1s\nx-ratelimit-remaining-tokens: 0\nx-ratelimit-reset-tokens: 20s", 20 * time.Second},
	{"Retry-After: 40000000", shaper.MaxHold},
	{"Retry-After: Fri, 31 Dec 9999 23:59:59 GMT", shaper.MaxHold},
	{"RateLimit: \"burst\";r=0;t=999999999999999", shaper.MaxHold},
	{"Retry-After: 0", 0},
	{"Retry-After: -5", 0},
	{"Retry-After: soon", 0},
	{"Retry-After: Sun, 01 Mar 2026 11:00:00 GMT", 0},
	{"Retry-After: 1772366400", 0},
	{"Retry-After: -1h", 0},
	{`RateLimit: "burst";r=1;t=5`, 0},
	{`RateLimit: "burst";r=0`, 0},
	{`RateLimit: "burst";r=0;t=-5`, 0},
	{`RateLimit: "burst";r=0;t=5, daily";r=0;t=60`, 0},
	{"X-RateLimit-Remaining: 1\nX-RateLimit-Reset: 5", 0},
	{"X-RateLimit-Remaining: -1\nX-RateLimit-Reset: 5", 0},
	{"X-RateLimit-Remaining: 0", 0},
	{"X-RateLimit-Reset: 5", 0},
	{"anthropic-ratelimit-tokens-remaining: 0\nanthropic-ratelimit-tokens-reset: 2026-03-01T11:00:00Z", 0},
}

func dialError(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }

// failures are the kinds of errors. docs/responses.md shows them.
var failures = []struct {
	name   string
	errs   []error
	result shaper.Result
	reason string
	signal shaper.Signal
}{
	{"no response within `timeout`", []error{
		context.DeadlineExceeded, dialError(os.ErrDeadlineExceeded), dialError(os.NewSyscallError("connect", syscall.ETIMEDOUT)),
	}, retry, ReasonTimeout, failed},
	{"no connection, a connection that was cut off, or a response that is not HTTP", []error{
		dialError(os.NewSyscallError("connect", syscall.ECONNREFUSED)), io.ErrUnexpectedEOF, errors.New("malformed HTTP response"),
	}, retry, ReasonConnection, failed},
	{"the name of the host does not resolve", []error{
		dialError(&net.DNSError{Err: "no such host", IsNotFound: true}), dialError(&net.DNSError{Err: "i/o timeout", IsTimeout: true}),
	}, retry, ReasonDNS, failed},
	{"TLS or its certificate fails", []error{
		&tls.CertificateVerificationError{Err: errors.New("expired")}, tls.RecordHeaderError{Msg: "first record does not look like TLS"},
		&net.OpError{Op: "remote error", Err: errors.New("tls: handshake failure")},
	}, retry, ReasonTLS, failed},
	{"the dispatcher stops before the response", []error{fmt.Errorf("send: %w", context.Canceled)}, retry, ReasonInterrupted, nothing},
	{"the name resolves to an address that is not allowed", []error{fmt.Errorf("%w: %w: 10.0.0.1:80", errResolved, ErrBlockedAddress)}, retry, ReasonBlockedAddress, nothing},
	{"the URL has an address that is not allowed", []error{dialError(fmt.Errorf("%w: 10.0.0.1:80", ErrBlockedAddress))}, dead, ReasonBlockedAddress, nothing},
	{"no request can be made of the job", []error{fmt.Errorf("%w: url: is not a URL", ErrInvalid)}, dead, ReasonInvalid, nothing},
}

func header(lines string) http.Header {
	h := http.Header{}
	for line := range strings.Lines(lines) {
		if name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); ok {
			h.Add(name, value)
		}
	}
	return h
}

// names is the header of an answer that names a time.
func names(wait time.Duration) http.Header {
	if wait == 0 {
		return http.Header{}
	}
	return header("Retry-After: " + wait.String())
}

func TestClassify(t *testing.T) {
	t.Parallel()
	for _, row := range answers {
		for _, status := range row.statuses {
			for _, by := range []struct {
				policy Policy
				want   shaper.Result
			}{{DefaultPolicy(), row.any}, {listed, row.listed}} {
				got := by.policy.Judge(&Response{Status: status, Header: names(row.wait), At: noon})
				want := shaper.Outcome{Result: by.want, Reason: row.reason, Status: status, Signal: row.signal, Detail: got.Detail, Gone: status == 410}
				got.Body = ""
				if strings.Contains(row.reason, "%d") {
					want.Reason = fmt.Sprintf(row.reason, status)
				}
				if by.want == retry || by.want == held {
					want.RetryAfter = row.wait
				}
				if tells := strings.Contains(got.Detail, fmt.Sprint(status)); !reflect.DeepEqual(got, want) || tells != (by.want != done) {
					t.Errorf("%d, tried again %q: %+v, want %+v", status, by.policy.Statuses, got, want)
				}
			}
		}
	}
}

func TestClassifyNamedWaits(t *testing.T) {
	t.Parallel()
	patient, eager := DefaultPolicy(), Policy{Statuses: []string{Any}}
	strict := Policy{Statuses: []string{"500"}, Hold: true}
	for _, row := range slices.Concat(namedWaits, furtherWaits) {
		for _, status := range []int{429, 503, 529} {
			want, wantStrict := held, held
			if row.want == 0 {
				want, wantStrict = retry, dead
			}
			if got := patient.Judge(&Response{Status: status, Header: header(row.header), At: noon}); got.Result != want || got.RetryAfter != row.want {
				t.Errorf("%d %q: %+v, want %s for %s", status, row.header, got, want, row.want)
			}
			if got := strict.Judge(&Response{Status: status, Header: header(row.header), At: noon}); got.Result != wantStrict || got.RetryAfter != row.want {
				t.Errorf("%d %q, not in the list: %+v, want %s for %s", status, row.header, got, wantStrict, row.want)
			}
			if got := eager.Judge(&Response{Status: status, Header: header(row.header), At: noon}); got.Result != retry || got.RetryAfter != row.want {
				t.Errorf("%d %q without holds: %+v, want a retry after %s", status, row.header, got, row.want)
			}
		}
		want := held
		if row.want == 0 {
			want = retry
		}
		for _, status := range []int{400, 403, 404, 420, 500, 509} {
			if got := patient.Judge(&Response{Status: status, Header: header(row.header), At: noon}); got.Result != want || got.RetryAfter != row.want {
				t.Errorf("%d %q: %+v, want %s for %s", status, row.header, got, want, row.want)
			}
		}
	}
}

func TestClassifyError(t *testing.T) {
	t.Parallel()
	for _, row := range failures {
		for _, err := range row.errs {
			got := ClassifyError(err)
			want := shaper.Outcome{Result: row.result, Reason: row.reason, Signal: row.signal, Detail: got.Detail, Private: got.Private}
			if !reflect.DeepEqual(got, want) || got.Detail == "" || !slices.Contains(Reasons(), got.Reason) {
				t.Errorf("%s: %v: %+v, want %+v", row.name, err, got, want)
			}
		}
	}
}

// The rule, told a second time for every status there can be.
func TestClassifyEveryStatus(t *testing.T) {
	t.Parallel()
	for status := range 1000 {
		for _, policy := range []Policy{DefaultPolicy(), listed} {
			got := policy.Judge(&Response{Status: status, Header: header("Retry-After: 60"), At: noon})
			want := retry
			switch {
			case status == 207:
				want = dead // it has no parts that can be read
			case status >= 200 && status <= 299:
				want = done
			case status == 410:
				want = dead
			case status >= 400 && status <= 599:
				want = held
			case policy.Statuses[0] == Any, status < 200, status > 499:
			default:
				want = dead
			}
			if got.Result != want || got.Status != status {
				t.Errorf("%d, tried again %q: %+v, want %s", status, policy.Statuses, got, want)
			}
			if waits := want == retry || want == held; (got.RetryAfter == time.Minute) != waits {
				t.Errorf("%d: retry after %s", status, got.RetryAfter)
			}
			if (want == done) != (got.Reason == "") || got.Reason != "" && !slices.Contains(Reasons(), got.Reason) {
				t.Errorf("%d: reason %q", status, got.Reason)
			}
		}
	}
}

func TestPolicyValidate(t *testing.T) {
	t.Parallel()
	for _, try := range []struct {
		statuses, err string
	}{
		{"any", ""},
		{"408 425 429 5xx", ""},
		{"3xx 4xx 5xx", ""},
		{"300 599", ""},
		{"5xx 503", ""}, // says one thing twice, and does no harm
		{"", `retry.statuses: is empty: want ["any"], or a list such as ["408", "429", "5xx"]`},
		{"any 500", `retry.statuses: "any": covers every status: leave the others out, or leave this out`},
		{"429 429", `retry.statuses: "429": is in the list twice`},
		{"410", `retry.statuses: "410": is final: the receiver wants no more, so the job is dead`},
		{"2xx", `retry.statuses: "2xx": want a status of 300 to 599 such as "408", a class (3xx, 4xx, 5xx), or "any"`},
		{"200 600 1xx 5XX 50 5000 4x4 Any -1 ４２９", strings.Repeat("want a status of 300 to 599\n", 10)},
	} {
		err := Policy{Statuses: strings.Fields(try.statuses)}.Validate()
		lines := strings.Count(try.err, "\n")
		switch {
		case (err == nil) != (try.err == ""):
		case err == nil, err.Error() == try.err:
			continue
		case lines > 0 && strings.Count(err.Error(), "want a status of 300 to 599") == lines:
			continue
		}
		t.Errorf("%q: got %v, want %s", try.statuses, err, try.err)
	}
	if err := (Policy{}).Validate(); err == nil {
		t.Error("the zero policy is valid")
	}
}

// A text that is valid is tried again after exactly the statuses that it names.
func FuzzPolicy(f *testing.F) {
	f.Add("any")
	f.Add("5xx")
	f.Add("410")
	f.Add("4xx")
	f.Add("599")
	f.Fuzz(func(t *testing.T, text string) {
		policy := Policy{Statuses: []string{text}}
		if policy.Validate() != nil {
			return
		}
		for status := 300; status < 600; status++ {
			named := text == Any || text == fmt.Sprint(status) || text == fmt.Sprint(status)[:1]+"xx"
			if got := policy.Judge(&Response{Status: status, Header: nil, At: noon}).Result; (got == retry) != (named && status != 410) {
				t.Errorf("%q: %d is %s", text, status, got)
			}
		}
	})
}

func TestReasonsAreDistinctWords(t *testing.T) {
	t.Parallel()
	reasons := Reasons()
	if len(reasons) > 48 {
		t.Errorf("%d reasons: too many for a label", len(reasons))
	}
	slices.Sort(reasons)
	must.Equal(t, len(slices.Compact(slices.Clone(reasons))), len(reasons), "a reason stands twice: %q", reasons)
}

func TestErrorDetailHoldsNoCredentials(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("deliver: %w", &url.Error{
		Op:  "Post",
		URL: "https://user:canary@hooks.example/services/canary?token=canary",
		Err: errors.New("connection reset\x1b[31m by peer"),
	})
	got := ClassifyError(err).Detail
	if want := "Post https://hooks.example: connection reset [31m by peer"; got != want {
		t.Errorf("detail %q, want %q", got, want)
	}
}
