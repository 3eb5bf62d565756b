package workers

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/tundish-io/tundish/shaper"
)

// byRule is the outcome of a response that a rule fits.
func (p Policy) byRule(rule *Rule, r *Response) shaper.Outcome {
	outcome := shaper.Outcome{Reason: ReasonRule, Status: r.Status, Signal: shaper.SignalAccepted}
	outcome.Detail = fmt.Sprintf("the receiver answered %d, and the rule of [[buckets.responses]] for %s judges it", r.Status, rule.name())
	switch rule.Outcome {
	case RuleDone:
		return p.accepted(r)
	case RuleItems:
		if r.OfBatch {
			return p.accepted(r) // Outcomes judges each item
		}
		var statuses []int
		_ = rule.eachItem(r.Body, func(item responseItem) { statuses = append(statuses, item.status) }) // the readable items count
		return p.partial(r, statuses)
	case RuleDead:
		outcome.Result = shaper.ResultDead
	case RuleRetry:
		outcome.Result, outcome.RetryAfter = shaper.ResultRetry, rule.wait(r)
		if outcome.Signal = statusSignal(r.Status); r.Status/100 == 2 {
			outcome.Signal = shaper.SignalFailed
		}
		if outcome.RetryAfter > 0 {
			outcome.Signal = shaper.SignalThrottled
		}
	case RuleHold:
		outcome.Result, outcome.Signal = shaper.ResultHeld, shaper.SignalThrottled
		outcome.RetryAfter = cmp.Or(rule.wait(r), rule.WaitDefault, DefaultRuleWait)
		if !p.Hold {
			outcome.Result = shaper.ResultRetry
		}
	}
	return outcome
}

// name describes the responses that a rule fits, for people.
func (rule *Rule) name() string {
	var parts []string
	if len(rule.Status) > 0 {
		parts = append(parts, "status "+strings.Join(rule.Status, " or "))
	}
	if rule.Header != "" {
		parts = append(parts, equals("header "+rule.Header, rule.HeaderValue))
	}
	if rule.Pointer != "" {
		parts = append(parts, equals(rule.Pointer, rule.Value))
	}
	return strings.Join(parts, ", ")
}

func equals(name, value string) string {
	if value == "" {
		return name
	}
	return name + " = " + strconv.Quote(value)
}

// Fitting returns the rule that judges a response, counted from 1, and its description; 0 if none fits.
func (rules Rules) Fitting(r *Response) (nth int, name string) {
	for i := range rules {
		if rule := rules[i : i+1].first(r); rule != nil {
			return i + 1, rule.name()
		}
	}
	return 0, ""
}
