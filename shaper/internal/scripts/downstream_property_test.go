package scripts_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/internal/must"
)

// Whatever answers come, in whatever order, and whatever is lost, released, disabled and enabled between: no job leaves before a hold
// is over, an open breaker lets one job go at a time, and every job ends once, as done or as a dead letter.
func TestAnswersInAnyOrder(t *testing.T) {
	t.Parallel()
	onReal(t, func(t *testing.T, base *rig) {
		rapid.Check(t, func(rt *rapid.T) {
			r, scope, flow := base.fresh(rt, fmt.Sprint("said", nextClaim())), "b ", ""
			if rapid.Bool().Draw(rt, "flows") {
				scope, flow = "f ", "a"
				r.configureFlows(settings{rateCount: 100}, flowSettings{rateCount: rapid.SampledFrom([]int64{0, 50}).Draw(rt, "rate")})
			} else {
				r.configure(settings{rateCount: 100})
			}
			r.hset("settings", "keep_attempts", 3, "downstream", scope+"5000000 10 2 1000000 4000000 3000000")
			said := func() (till int64, breaker string) {
				text := r.field("pace", "down")
				if flow != "" {
					text, _, _ = strings.Cut(r.field("flows", flow), " ")
				}
				fields := strings.Split(strings.TrimPrefix(text, "@"), ",")
				if len(fields) < 14 {
					return 0, "0"
				}
				till = must.Get(strconv.ParseInt(fields[0], 10, 64))(r.t)
				return till, fields[3]
			}
			take := func(want int64) (jobs []lease) {
				till, breaker := said()
				c := claimed{}
				if flow == "" {
					c = r.claim(ask{want: want})
				} else {
					c = r.drain(ask{want: want})
				}
				for i, job := range c.jobs {
					if job.slot < till {
						rt.Fatalf("%s leaves %d µs before the hold is over", job.id, till-job.slot)
					}
					if breaker != "0" && i > 0 {
						rt.Fatalf("with a breaker that is not closed leave %s", c.ids())
					}
				}
				return c.jobs
			}
			enable := func() {
				if flow != "" {
					r.controlFlow(flow, "enable")
					r.controlFlow(flow, "release")
				} else {
					r.control("release", "anna")
				}
			}
			ids := numbered(30)
			if flow == "" {
				r.put(ids...)
			} else {
				r.putIn(flow, 3, 0, ids...)
			}
			var held []lease
			for range rapid.IntRange(1, 40).Draw(rt, "steps") {
				switch rapid.SampledFrom([]string{"claim", "claim", "answer", "answer", "lose", "pass", "pass", "release", "empty"}).Draw(rt, "does") {
				case "claim":
					held = append(held, take(rapid.Int64Range(1, 5).Draw(rt, "want"))...)
				case "answer":
					var answers []outcome
					for range min(len(held), rapid.IntRange(1, 5).Draw(rt, "answers")) {
						result := rapid.SampledFrom([]int{done, retry, dead, returned, wasHeld, 7, wasGone}).Draw(rt, "result")
						if result == wasGone && flow == "" {
							result = dead
						}
						answers = append(answers, outcome{
							lease: held[0], result: result, delay: rapid.Int64Range(0, 10*second).Draw(rt, "delay"), reason: "http_500",
							signal: rapid.SampledFrom([]int{0, accepted, throttled, failed, failed}).Draw(rt, "signal"),
							last:   `{"cause":"permanent"}`, claimedAt: r.now() - rapid.Int64Range(0, second).Draw(rt, "ago"),
						})
						held = held[1:]
					}
					if len(answers) == 0 {
						continue
					}
					for i, code := range r.settle(answers...) {
						if code == 0 {
							rt.Fatalf("%s was not settled", answers[i].id)
						}
					}
					if codes := r.settle(answers...); slices.Max(codes) != 0 {
						rt.Fatalf("settled twice: %v", codes)
					}
				case "lose":
					if len(held) > 0 {
						r.end(held[0].id)
						r.sweep(sweep{pardon: true})
						held = slices.DeleteFunc(held, func(l lease) bool { return r.c.ZScore(r.ctx, r.key("leases"), l.id).Err() != nil })
					}
				case "pass":
					r.pass(rapid.SampledFrom([]int64{1000, second / 10, second, 5 * second}).Draw(rt, "micros"))
				case "release":
					enable()
				case "empty":
					if flow != "" {
						r.emptyDisabled(flow, 7)
					}
				}
			}
			for _, job := range held {
				r.settle(outcome{lease: job, result: returned})
			}
			for range 100 {
				enable()
				r.pass(10 * second)
				for _, job := range take(5) {
					r.settle(outcome{lease: job, result: done, signal: accepted, claimedAt: r.now()})
				}
				if r.inspect().unfinished == 0 {
					break
				}
			}
			b := r.inspect()
			if b.unfinished != 0 || b.inFlight != 0 || b.dead+b.remembered != int64(len(ids)) {
				rt.Fatalf("of %d jobs %d are left, %d in flight, %d dead and %d done", len(ids), b.unfinished, b.inFlight, b.dead, b.remembered)
			}
			r.wantAttemptsOfJobs()
		})
	})
}
