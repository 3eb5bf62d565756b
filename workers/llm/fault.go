package llm

import (
	"fmt"
	"slices"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
)

// noMoney are the words by which providers report that an account is out of credit or over its spending limit. Only an operator can change that.
var noMoney = []string{
	"insufficient_quota",           // OpenAI, 429: the type and the code of the error
	"billing_error",                // Anthropic, 402: its type
	"enforced_spend_limit_reached", // Anthropic, 429: the code in its details
}

// An overloaded provider responds with 529, doesn't blame the request, and often names no time. The scope then waits for overloadedHold: without it, an
// hour of overload would spend the attempts of a whole backlog.
const overloadedHold = time.Second

// noMoneyIn returns the word in an error body by which a provider says that the account is out of credit, "" if there is none. The body is {"error":
// {…}}, alone or, as in Gemini's OpenAI-compatible API, the first element of a list.
func noMoneyIn(body []byte) string {
	said := errorIn(body)
	if said == nil {
		return ""
	}
	for _, word := range []string{said.kind, said.code, said.detail} {
		if slices.Contains(noMoney, word) {
			return word
		}
	}
	return ""
}

// refineOutcome changes the outcome of an error response by the details in its body that [workers.Policy.Judge] does not read.
//
// Without money the scope is held for as long as its bucket permits, whatever the policy says of holds: each job would fail, and spend its attempts. An
// overload that names no time holds for a short time. A rule of the bucket has decided already.
func refineOutcome(policy workers.Policy, outcome shaper.Outcome, body []byte) shaper.Outcome {
	if outcome.Reason == workers.ReasonRule {
		return outcome
	}
	if word := noMoneyIn(body); word != "" {
		outcome.Result, outcome.Reason, outcome.RetryAfter, outcome.Signal = shaper.ResultHeld, workers.ReasonBilling, shaper.MaxHold, shaper.SignalThrottled
		outcome.Detail = fmt.Sprintf("the provider answered %d %s: the account is out of credit or over its spend limit: pay or raise the limit, then release the hold", outcome.Status, word)
		return outcome
	}
	if outcome.Status == statusOverloaded && outcome.RetryAfter == 0 {
		outcome.RetryAfter = overloadedHold
		if policy.Hold {
			outcome.Result = shaper.ResultHeld
		}
	}
	return outcome
}
