package producer

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

// overBudget refuses a job that reserves more than the whole of a budget. budget is the part of enqueue.lua's reply that names it.
func overBudget(b *producerBucket, t *entry, budget string, reserves int64) *shaper.Refusal {
	scope, text, _ := strings.Cut(budget, " ")
	of := append(codec.ReadBudgets(text), admission.Rate{}) // there is one
	return &shaper.Refusal{
		Reason: codec.Refusals[lua.OverBudget],
		Detail: fmt.Sprintf("the job reserves %d %s, and %s has a budget of %s: reserve less, by a lower max_tokens for example, or raise the budget",
			reserves, of[0].Unit, owner(b, t, scope), of[0]),
	}
}

// owner names the bucket, the flow, the group or the pool of a job.
func owner(b *producerBucket, t *entry, scope string) string {
	switch scope {
	case "flow":
		return fmt.Sprintf("flow %q of bucket %q", t.job.Flow, b.Name)
	case "group":
		return fmt.Sprintf("group %q of bucket %q", t.job.Group, b.Name)
	case "pool":
		return fmt.Sprintf("pool %q", b.Keys.Pool)
	}
	return fmt.Sprintf("bucket %q", b.Name)
}

// heldByBudget describes the budget that makes a job wait for longer than it may. text is the part of enqueue.lua's reply after the number of jobs
// ahead.
func heldByBudget(b *producerBucket, t *entry, text string, refusal *shaper.Refusal) string {
	var ahead, amount, micros, free, reserves, alone int64
	var scope, unit string
	if n, _ := fmt.Sscan(text, &ahead, &scope, &unit, &amount, &micros, &free, &reserves, &alone); n < 8 {
		return fmt.Sprintf("a budget of bucket %q makes the job wait for longer than it may", b.Name)
	}
	budget := fmt.Sprintf("the budget of %s of %s", admission.Rate{Count: amount, Per: lua.Microseconds(micros), Unit: unit}, owner(b, t, scope))
	switch {
	case alone == 0:
		budget = fmt.Sprintf("the %d ahead of the job use up %s", ahead, budget)
	case free == 0:
		budget += " is used up"
	case free < reserves:
		budget += fmt.Sprintf(" has %d left, and the job reserves %d", free, reserves)
	default:
		budget += " is spread over its window, and has less to give now"
	}
	return fmt.Sprintf("%s, and the job would have to wait for more than %s: retry in %s", budget,
		t.job.MaxWait.Round(10*time.Millisecond), roundUp(refusal.RetryAfter+refusal.Spread))
}

// roundUp makes whole seconds, 1 or more, for people and for Retry-After.
func roundUp(d time.Duration) time.Duration {
	return time.Duration(max(math.Ceil(d.Seconds()), 1)) * time.Second
}
