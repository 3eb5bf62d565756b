package workers

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// Any in [Policy.Statuses] is every status but 2xx and 410.
const Any = "any"

// Policy says what becomes of a job after each answer of its receiver. docs/webhooks.md has the whole table. Errors need
// no policy: see [ClassifyError]. The zero value is not valid; see [DefaultPolicy].
type Policy struct {
	// Statuses are the answers after which a job is tried again: statuses from 300 to 599 such as "408", classes
	// such as "5xx", or [Any] alone. After any other answer but 2xx the job is dead. After 410 it always is.
	Statuses []string

	// Hold says whether a 429, 503 or 529 that names a time is a [shaper.ResultHeld], whatever Statuses are: the
	// answer finds no fault with the job. Without Hold it is judged by Statuses, like any other.
	Hold bool
}

// DefaultPolicy returns that of webhooks, as Standard Webhooks says: [Any], with holds.
func DefaultPolicy() Policy { return Policy{Statuses: []string{Any}, Hold: true} }

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
	return errors.Join(errs...)
}

// Classify decides by an answer, its status and header, how an attempt ended. A retry and a hold have the time that the
// header names as their RetryAfter, from 0 to [shaper.MaxHold]. now is the time of the answer.
//
// A status outside 200 to 599 counts as a 5xx: it is no final answer of HTTP (RFC 9110, 15). A redirect is not
// followed: it would be a second request without a permit.
func (p Policy) Classify(status int, header http.Header, now time.Time) shaper.Outcome {
	if status/100 == 2 {
		return shaper.Done(status)
	}
	outcome := shaper.Dead(statusReason(status), statusDetail(status))
	outcome.Status, outcome.Signal = status, statusSignal(status)
	if status == http.StatusGone {
		outcome.Gone = true
		return outcome
	}
	wait := namedWait(header, now)
	switch {
	case p.Hold && wait > 0 && asksForLess(status):
		outcome.Result, outcome.RetryAfter = shaper.ResultHeld, wait
	case p.triesAgain(status):
		outcome.Result, outcome.RetryAfter = shaper.ResultRetry, wait
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

// statusOverloaded is 529, which has no name in HTTP: Anthropic answers it while it is overloaded, and others do.
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
