package workers

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/tundish-io/tundish/shaper"
)

// The outcomes of a [Rule].
const (
	RuleDone  = "done"
	RuleRetry = "retry"
	RuleHold  = "hold"
	RuleDead  = "dead"
	RuleItems = "items" // each item has a status of its own
)

// The units of the wait that a [Rule] points at, if it is a plain number.
const (
	WaitSeconds = "s"
	WaitMillis  = "ms"
)

// MaxRules bounds the rules of a bucket, and DefaultRuleWait is the length of a hold whose response names no time.
const (
	MaxRules        = 32
	DefaultRuleWait = time.Second
)

// Rule judges the responses that it fits: those with one of its statuses, its header, and its value in the JSON body. A condition that the rule does not
// set fits all. Keys are the keys of [[buckets.responses]].
type Rule struct {
	Status      []string `setting:"status"`       // statuses such as "200", and classes such as "4xx"
	Header      string   `setting:"header"`       // the name of a header that is there
	HeaderValue string   `setting:"header_value"` // and has this value; "": any
	Pointer     string   `setting:"pointer"`      // a JSON pointer (RFC 6901) to a value that is there, and not null; a step "*" is any
	Value       string   `setting:"value"`        // and is this, where "*" stands for any text; "": any

	Outcome string `setting:"outcome"`

	Wait        string        `setting:"wait"`         // of retry and hold: a JSON pointer or a header that names the time; "": the standard headers
	WaitUnit    string        `setting:"wait_unit"`    // of a plain number there
	WaitDefault time.Duration `setting:"wait_default"` // of a hold whose response names no time

	Items      string `setting:"items"`       // of items: a JSON pointer to their list
	ItemStatus string `setting:"item_status"` // a JSON pointer to the status, from the item on
	ItemID     string `setting:"item_id"`     // to the id of the job; "": items stand in the order of the jobs
}

// DefaultRule returns the defaults of a rule.
func DefaultRule() Rule { return Rule{WaitUnit: WaitSeconds, WaitDefault: DefaultRuleWait} }

// Rules are the rules of a bucket. The first one that fits decides.
type Rules []Rule

var anyStatusOrClass = regexp.MustCompile(`^[1-5]([0-9][0-9]|xx)$`)

// Validate reports every fault, joined, or nil. Each begins with the key of the configuration.
func (rules Rules) Validate() error {
	var errs []error
	if len(rules) > MaxRules {
		errs = append(errs, fmt.Errorf("responses: %d rules: want %d at most", len(rules), MaxRules))
	}
	for i, rule := range rules {
		rule.validate(func(key, format string, args ...any) {
			errs = append(errs, fmt.Errorf("responses[%d].%s: %s", i, key, fmt.Sprintf(format, args...)))
		})
	}
	return errors.Join(errs...)
}

func (rule *Rule) validate(fail func(key, format string, args ...any)) {
	for _, text := range rule.Status {
		if !anyStatusOrClass.MatchString(text) {
			fail("status", "%q: want a status such as \"403\", or a class such as \"4xx\"", text)
		}
	}
	if len(rule.Status) == 0 && rule.Header == "" && rule.Pointer == "" {
		fail("status", "is missing, and so are header and pointer: the rule would fit every response")
	}
	if rule.Header != "" && !httpguts.ValidHeaderFieldName(rule.Header) {
		fail("header", "%q: is not the name of a header", rule.Header)
	}
	if rule.HeaderValue != "" && rule.Header == "" {
		fail("header_value", "%q: is the value of a header: name that in header", rule.HeaderValue)
	}
	if rule.Value != "" && rule.Pointer == "" {
		fail("value", "%q: is the value at a JSON pointer: name that in pointer", rule.Value)
	}
	checkPointer(fail, "pointer", rule.Pointer)
	switch outcomes := []string{RuleDone, RuleRetry, RuleHold, RuleDead, RuleItems}; {
	case rule.Outcome == "":
		fail("outcome", "is missing: want one of %s", strings.Join(outcomes, ", "))
	case !slices.Contains(outcomes, rule.Outcome):
		fail("outcome", "%q: want one of %s", rule.Outcome, strings.Join(outcomes, ", "))
	}
	rule.validateWait(fail)
	rule.validateItems(fail)
}

func (rule *Rule) validateWait(fail func(key, format string, args ...any)) {
	switch {
	case rule.Wait == "":
	case rule.Outcome != RuleRetry && rule.Outcome != RuleHold:
		fail("wait", "%q: is for the outcomes retry and hold", rule.Wait)
	case strings.HasPrefix(rule.Wait, "/"):
		checkPointer(fail, "wait", rule.Wait)
	case !httpguts.ValidHeaderFieldName(rule.Wait):
		fail("wait", "%q: want a JSON pointer, which begins with \"/\", or the name of a header", rule.Wait)
	}
	if rule.WaitUnit != "" && rule.WaitUnit != WaitSeconds && rule.WaitUnit != WaitMillis {
		fail("wait_unit", "%q: want %s or %s", rule.WaitUnit, WaitSeconds, WaitMillis)
	}
	if rule.WaitDefault < 0 || rule.WaitDefault > shaper.MaxHold {
		fail("wait_default", "%s: want 0s (which is %s) to %s", rule.WaitDefault, DefaultRuleWait, shaper.MaxHold)
	}
}

func (rule *Rule) validateItems(fail func(key, format string, args ...any)) {
	for _, one := range []struct{ key, text string }{{"items", rule.Items}, {"item_status", rule.ItemStatus}, {"item_id", rule.ItemID}} {
		switch {
		case one.text != "" && rule.Outcome != RuleItems:
			fail(one.key, "%q: is for the outcome items", one.text)
		case one.text == "" && rule.Outcome == RuleItems && one.key != "item_id":
			fail(one.key, "is missing: the outcome items wants a JSON pointer here")
		default:
			checkPointer(fail, one.key, one.text)
		}
	}
}

func checkPointer(fail func(key, format string, args ...any), key, text string) {
	if text == "" {
		return
	}
	if _, err := parsePointer(text); err != nil {
		fail(key, "%q: %v", text, err)
	}
}

// first returns the first rule that fits, nil if none does.
func (rules Rules) first(r *Response) *Rule {
	for i := range rules {
		if rule := &rules[i]; rule.fitsHead(r) && rule.fitsBody(r.Body) {
			return rule
		}
	}
	return nil
}

// wantBody reports whether a rule reads the body of a response with such a head.
func (rules Rules) wantBody(r *Response) bool {
	return slices.ContainsFunc(rules, func(rule Rule) bool {
		return (rule.Pointer != "" || rule.Outcome == RuleItems || strings.HasPrefix(rule.Wait, "/")) && rule.fitsHead(r)
	})
}

func (rule *Rule) fitsHead(r *Response) bool {
	number, class := strconv.Itoa(r.Status), strconv.Itoa(r.Status/100)+"xx"
	if len(rule.Status) > 0 && !slices.Contains(rule.Status, number) && !slices.Contains(rule.Status, class) {
		return false
	}
	if rule.Header == "" {
		return true
	}
	return slices.ContainsFunc(r.Header.Values(rule.Header), func(value string) bool {
		return rule.HeaderValue == "" || strings.EqualFold(strings.TrimSpace(value), rule.HeaderValue)
	})
}

func (rule *Rule) fitsBody(body []byte) bool {
	if rule.Pointer == "" {
		return true
	}
	at, err := parsePointer(rule.Pointer)
	if err != nil || len(bytes.TrimSpace(body)) == 0 {
		return false
	}
	_, found := find(body, at, func(text string) bool { return rule.Value == "" || isLike(text, rule.Value) })
	return found
}

// isLike reports whether a text matches the pattern, where "*" stands for any text.
func isLike(text, pattern string) bool {
	first, rest, hasAny := strings.Cut(pattern, "*")
	text, ok := strings.CutPrefix(text, first)
	if !hasAny || !ok {
		return ok && text == ""
	}
	parts := strings.Split(rest, "*")
	last := parts[len(parts)-1]
	for _, part := range parts[:len(parts)-1] {
		if _, text, ok = strings.Cut(text, part); !ok {
			return false
		}
	}
	return strings.HasSuffix(text, last)
}

// wait returns how long a response asks to wait by the rule, 0 if it names no time. Absolute times are of the clock of the response.
func (rule *Rule) wait(r *Response) time.Duration {
	text := ""
	switch {
	case rule.Wait == "":
		return r.wait()
	case strings.HasPrefix(rule.Wait, "/"):
		if at, err := parsePointer(rule.Wait); err == nil {
			text, _ = find(r.Body, at, nil)
		}
	default:
		text = headerValue(r.Header, rule.Wait)
	}
	text = strings.TrimSpace(text[:min(len(text), maxHeaderValue)])
	if n, ok := parseNumber(text); ok && rule.WaitUnit == WaitMillis && n < 1e12 { // above, it is a time
		return waitOf(n, time.Millisecond)
	}
	return parseWait(text, r.clock())
}
