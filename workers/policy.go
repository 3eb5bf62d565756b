package workers

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"

	"github.com/tundish-io/tundish/shaper"
)

// Any in [Policy.Statuses] is every status but 2xx and 410.
const Any = "any"

// Policy decides what becomes of a job after each response of its receiver, by [Policy.Judge], for all workers. docs/responses.md and docs/response-rules.md
// have the whole tables. Errors need no policy: see [ClassifyError]. The zero value is not valid; see [DefaultPolicy].
type Policy struct {
	// Rules judge the responses that they fit, in their order, before all else.
	Rules Rules

	// Statuses are the statuses after which a job is retried: from 300 to 599 such as "408", classes such as "5xx", or [Any] alone. After any other
	// status but 2xx the job is dead. After 410 it always is.
	Statuses []string

	// Hold says whether a response from 400 on that names a time is a [shaper.ResultHeld], whatever Statuses are: it does not blame the job. Without Hold
	// it is judged by Statuses, like any other.
	Hold bool

	// HoldAtZero says whether a 2xx holds the scope if it reports an exhausted rate limit and its reset: its job is done, with a RetryAfter until the
	// reset.
	HoldAtZero bool
}

// DefaultPolicy returns the policy of webhooks, as Standard Webhooks defines it: [Any], with holds.
func DefaultPolicy() Policy { return Policy{Statuses: []string{Any}, Hold: true, HoldAtZero: true} }

var statusOrClass = regexp.MustCompile(`^[345]([0-9][0-9]|xx)$`)

// Validate reports every fault of the policy, joined, or nil. Each begins with the key of the configuration.
func (p Policy) Validate() error {
	var errs []error
	fail := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("retry.statuses: "+format, args...))
	}
	if len(p.Statuses) == 0 {
		fail("is empty: want [%q], or a list such as [\"408\", \"429\", \"5xx\"]", Any)
	}
	for i, text := range p.Statuses {
		switch {
		case text == Any && len(p.Statuses) > 1:
			fail("%q: covers every status: leave the others out, or leave this out", text)
		case text == strconv.Itoa(http.StatusGone):
			fail("%q: is final: the receiver wants no more, so the job is dead", text)
		case text != Any && !statusOrClass.MatchString(text):
			fail("%q: want a status of 300 to 599 such as \"408\", a class (3xx, 4xx, 5xx), or %q", text, Any)
		case slices.Contains(p.Statuses[:i], text):
			fail("%q: is in the list twice", text)
		}
	}
	return errors.Join(append(errs, p.Rules.Validate())...)
}

// byStatus judges a response by its status and by the time that it names.
func (p Policy) byStatus(r *Response) shaper.Outcome {
	if r.Status/100 == 2 {
		return p.accepted(r)
	}
	outcome := shaper.Dead(statusReason(r.Status), statusDetail(r.Status))
	outcome.Status, outcome.Signal = r.Status, statusSignal(r.Status)
	if r.Status == http.StatusGone {
		outcome.Gone = true
		return outcome
	}
	wait := r.wait()
	switch {
	case p.Hold && wait > 0 && r.Status >= 400 && r.Status <= 599:
		outcome.Result, outcome.RetryAfter, outcome.Signal = shaper.ResultHeld, wait, shaper.SignalThrottled
	case p.triesAgain(r.Status), r.Status == http.StatusConflict && r.InDoubt:
		outcome.Result, outcome.RetryAfter = shaper.ResultRetry, wait
	}
	return outcome
}

// accepted is the outcome of a job whose receiver took it.
func (p Policy) accepted(r *Response) shaper.Outcome {
	outcome := shaper.Done(r.Status)
	if p.HoldAtZero && namesWindow(r.Header) { // most responses: there is nothing to parse
		outcome.RetryAfter = exhaustedLimits(r.Header, r.clock(), windowHeaders)
	}
	return outcome
}

func (p Policy) triesAgain(status int) bool {
	number, class := strconv.Itoa(status), strconv.Itoa(statusClass(status))+"xx"
	return slices.ContainsFunc(p.Statuses, func(s string) bool { return s == Any || s == number || s == class })
}

// statusClass is 2 to 5.
func statusClass(status int) int {
	if class := status / 100; class >= 2 && class <= 5 {
		return class
	}
	return 5
}

// statusOverloaded is 529, which has no name in HTTP: Anthropic and others return it while they are overloaded.
const statusOverloaded = 529

func asksForLess(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable || status == statusOverloaded
}

func statusSignal(status int) shaper.Signal {
	switch {
	case asksForLess(status):
		return shaper.SignalThrottled
	case statusClass(status) == 5:
		return shaper.SignalFailed
	default:
		return shaper.SignalAccepted
	}
}

func statusDetail(status int) string {
	if text := http.StatusText(status); text != "" {
		return fmt.Sprintf("the receiver answered %d %s", status, text)
	}
	return fmt.Sprintf("the receiver answered %d", status)
}
