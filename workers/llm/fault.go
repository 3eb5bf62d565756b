package llm

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
)

// noMoney are the words by which providers say that an account is out of credit or over its limit of spending. Only people can change that.
var noMoney = []string{
	"insufficient_quota",           // OpenAI, 429: the type and the code of the error
	"billing_error",                // Anthropic, 402: its type
	"enforced_spend_limit_reached", // Anthropic, 429: the code in its details
}

// A provider that is overloaded answers 529, finds no fault with the request, and often names no time. The scope then waits for overloadedHold:
// an hour of that would spend the attempts of a whole backlog.
const (
	statusOverloaded = 529
	overloadedHold   = time.Second
)

// fault is what the body of an error says.
type fault struct {
	noMoney    string // the word for it, "" if it is another error
	retryDelay string // as Google's APIs name a time: "45.8s"
}

// faultOf reads {"error": {…}}, alone or, as Gemini answers in the form of OpenAI, as the first of a list.
func faultOf(body []byte) (f fault) {
	var answer any
	if json.Unmarshal(body, &answer) != nil {
		return f
	}
	if list, ok := answer.([]any); ok && len(list) > 0 {
		answer = list[0]
	}
	object, _ := answer.(map[string]any)
	said, _ := object["error"].(map[string]any)
	words := []any{said["type"], said["code"]}
	switch details := said["details"].(type) {
	case map[string]any:
		words = append(words, details["error_code"])
	case []any:
		f.retryDelay = retryDelay(details)
	}
	for _, word := range words {
		if word, ok := word.(string); ok && slices.Contains(noMoney, word) {
			f.noMoney = word
		}
	}
	return f
}

// retryDelay reads google.rpc.RetryInfo.
func retryDelay(details []any) string {
	for _, detail := range details {
		info, _ := detail.(map[string]any)
		kind, _ := info["@type"].(string)
		if delay, ok := info["retryDelay"].(string); ok && strings.HasSuffix(kind, "google.rpc.RetryInfo") {
			return delay
		}
	}
	return ""
}

// judge changes the outcome of an error answer by what its body says. now is the time of the answer.
//
// Without money the scope is held for as long as its bucket permits, whatever the policy says of holds: each job would fail, and spend its
// attempts. A time in the body holds as Retry-After does, unless a header names another one. An overload that names none holds for a short time.
func judge(policy workers.Policy, outcome shaper.Outcome, body []byte, now time.Time) shaper.Outcome {
	f := faultOf(body)
	if f.noMoney != "" {
		outcome.Result, outcome.Reason, outcome.RetryAfter, outcome.Signal = shaper.ResultHeld, workers.ReasonBilling, shaper.MaxHold, shaper.SignalThrottled
		outcome.Detail = fmt.Sprintf("the provider answered %d %s: the account is out of credit or over its spend limit: pay or raise the limit, then release the hold", outcome.Status, f.noMoney)
		return outcome
	}
	if outcome.RetryAfter == 0 && f.retryDelay != "" {
		named := policy.Classify(outcome.Status, http.Header{"Retry-After": {f.retryDelay}}, now)
		if named.RetryAfter > 0 {
			outcome.Result, outcome.RetryAfter = named.Result, named.RetryAfter
		}
	}
	if outcome.Status == statusOverloaded && outcome.RetryAfter == 0 {
		outcome.RetryAfter = overloadedHold
		if policy.Hold {
			outcome.Result = shaper.ResultHeld
		}
	}
	return outcome
}
