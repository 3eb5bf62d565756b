package scripts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/internal/must"
)

// chargedNow is what budgets of tokens have charged, by the level: b, f<flow>, g<group> and pool.
func (r *rig) chargedNow(t tb) map[string]int64 {
	t.Helper()
	texts := r.hash("charges")
	if r.pool != "" {
		texts["pool"] = r.c.HGet(r.ctx, r.poolKey("pace"), "charges").Val()
	}
	sums := map[string]int64{}
	for level, text := range texts {
		var amount, window, total int64
		if n, _ := fmt.Sscanf(text, "tokens %d %d %d", &amount, &window, &total); n == 3 {
			sums[level] = total
		}
	}
	return sums
}

// levelsOfResponses are buckets with a budget of 1,000,000 tokens an hour at each level.
func levelsOfResponses(t tb, base *rig, kind string) *rig {
	name := fmt.Sprint("b", nextClaim())
	own, text := settings{rateCount: 1000, capacity: 10_000, inFlight: 10_000}, fmt.Sprintf("tokens 1000000 %d;", 3600*second)
	r := base.fresh(t, name)
	switch kind {
	case "pool":
		r = base.pooled(t, name, name+".0", 1, own)
		r.configurePool(poolSettings{rateCount: 1000})
		r.ok(r.c.HSet(r.ctx, r.poolKey("conf"), "budgets", text, "budget_burst", 100).Err())
	case "groups":
		r.configureGroups(own, flowSettings{}, flowSettings{})
		r.setBudgets("group_", text, 100)
		r.setBudgets("flow_", text, 100)
	case "flows":
		r.configureFlows(own, flowSettings{})
		r.setBudgets("flow_", text, 100)
	default:
		r.configure(own)
	}
	r.setBudgets("", text, 100)
	return r
}

// oneOf makes a job of a flow that reserves so many tokens, and claims it.
func (r *rig) oneOf(flow, id string, cost int64) (lease, int64) {
	r.t.Helper()
	r.pass(second)
	at := r.now()
	return r.usedBy(entry{id: id, units: fmt.Sprintf("input:%d,output:0", cost)}.in(r, flow))[id], at
}

// The first outcome that reports the usage of a response settles it, whatever the order in which outcomes come, and however often each is sent
// and each response polled, from any flow: then each budget has charged the usage once, or what is reserved of a response that nobody polled.
func TestResponsesAreSettledOnce(t *testing.T) {
	t.Parallel()
	base := realRig(t)
	rapid.Check(t, func(rt *rapid.T) {
		kind := rapid.SampledFrom([]string{"plain", "flows", "groups", "pool"}).Draw(rt, "kind")
		base.setTime(epoch)
		r := levelsOfResponses(rt, base, kind)
		flowOf := func() string {
			f := rapid.IntRange(0, 2).Draw(rt, "flow")
			switch kind {
			case "flows":
				return fmt.Sprint("f", f)
			case "groups":
				return path(fmt.Sprint("g", f/2), fmt.Sprint("f", f))
			}
			return ""
		}
		var reserved, usage []int64
		var polled []bool
		var open, sent []outcome
		for step := range rapid.IntRange(1, 30).Draw(rt, "steps") {
			switch what := rapid.IntRange(0, 3).Draw(rt, "what"); {
			case what == 0 || len(usage) == 0:
				n := len(usage)
				reserved, usage, polled = append(reserved, rapid.Int64Range(0, 1000).Draw(rt, "reserved")), append(usage, rapid.Int64Range(0, 1000).Draw(rt, "used")), append(polled, false)
				job, at := r.oneOf(flowOf(), fmt.Sprint("post", n), reserved[n])
				open = append(open, outcome{lease: job, result: done, claimedAt: at, response: fmt.Sprintf("!o resp_%d m", n)})
			case what == 1:
				n := rapid.IntRange(0, len(usage)-1).Draw(rt, "response")
				polled[n] = true
				job, at := r.oneOf(flowOf(), fmt.Sprint("poll", step), 0)
				open = append(open, outcome{
					lease: job, result: done, claimedAt: at, used: fmt.Sprintf("input:%d,output:0", usage[n]), use: fmt.Sprintf("m %d 0", usage[n]),
					response: fmt.Sprintf("!p resp_%d ", n),
				})
			case len(open) > 0:
				var some []outcome
				for range rapid.IntRange(1, len(open)).Draw(rt, "outcomes") {
					i := rapid.IntRange(0, len(open)-1).Draw(rt, "which")
					some, open = append(some, open[i]), slices.Delete(open, i, i+1)
				}
				r.settle(some...)
				sent = append(sent, some...)
			case len(sent) > 0:
				r.settle(sent...)
			}
		}
		if len(open) > 0 {
			r.settle(open...)
		}
		want, wantUse := int64(0), int64(0)
		for n := range usage {
			if polled[n] {
				want, wantUse = want+usage[n], wantUse+usage[n]
			} else {
				want += reserved[n]
			}
		}
		sums := r.chargedNow(rt)
		flows, groups := int64(0), int64(0)
		for level, sum := range sums {
			switch level[0] {
			case 'f':
				flows += sum
			case 'g':
				groups += sum
			}
		}
		if sums["b"] != want || kind == "pool" && sums["pool"] != want || strings.Contains("flows groups", kind) && flows != want || kind == "groups" && groups != want {
			rt.Fatalf("charged %v, want %d: reserved %d, used %d, polled %t", sums, want, reserved, usage, polled)
		}
		input := int64(0)
		for _, value := range r.use(r.now()) {
			var calls, in int64
			_, _ = fmt.Sscanf(value, "%d %d", &calls, &in)
			input += in
		}
		must.Be(rt, input, wantUse, "counted")
	})
}

// Where a request has left the window of a budget, the usage of its response is charged when it is reported; a longer one is charged the rest.
// What is given back is free at once.
func TestResponsesAndWindows(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		for name, c := range map[string]struct {
			after int64
			used  int64
			want  [2]int64 // of a minute, of an hour
		}{
			"more, at once":  {second, 900, [2]int64{900, 900}},
			"less, at once":  {second, 100, [2]int64{100, 100}},
			"more, later":    {90 * second, 900, [2]int64{900, 900}},
			"less, later":    {90 * second, 100, [2]int64{100, 100}},
			"nothing, later": {90 * second, 0, [2]int64{0, 0}},
		} {
			r := r.fresh(t, fmt.Sprint("b", nextClaim()))
			r.configure(settings{rateCount: 1000, inFlight: 10_000})
			r.setBudgets("", fmt.Sprintf("tokens 1000 %d;input 1000 %d;", 60*second, 3600*second), 100)
			post, at := r.oneOf("", "post", 500)
			r.settle(outcome{lease: post, result: done, claimedAt: at, response: "!o resp_1 m"})
			r.pass(c.after)
			for i := range 3 {
				poll, at := r.oneOf("", fmt.Sprint("poll", i), 0)
				r.settle(outcome{lease: poll, result: done, claimedAt: at, used: fmt.Sprintf("input:%d,output:0", c.used), response: "!p resp_1 "})
			}
			var amount, window int64
			var got [2]int64
			text := r.field("charges", "b")
			_, rest, _ := strings.Cut(text, "input")
			_, _ = fmt.Sscanf(text, "tokens %d %d %d", &amount, &window, &got[0])
			_, _ = fmt.Sscanf("input"+rest, "input %d %d %d", &amount, &window, &got[1])
			must.Equal(t, got, c.want, "%s: charged", name)
		}
	})
}

// A server may use an id again, and a response may have several requests. A response that nobody has begun is charged to the first poll of it,
// one that its own request reported to none. 10,000 are kept, and those that are open longest.
func TestResponsesOfOtherKinds(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		for name, c := range map[string]struct {
			steps string // of a request: "role used", or "role" if as reserved, 100
			want  int64
		}{
			"an id again":               {"o;p 10;o;p 20;p 20", 30},
			"two requests, then a poll": {"o;o;p 150;p 150", 150},
			"two requests, then less":   {"o;o;p 50", 50},
			"the second one reports":    {"o;r 300;p 300", 300},
			"one that reports itself":   {"r 70;p 70;p 70", 70},
			"each reports itself":       {"r 70;r 70", 140},
			"nobody began it":           {"p 70;p 70", 70},
			"one that is read again":    {"q 70;q 70", 0},
			"one that broke off":        {"o 30;q 70;q 70", 70},
			"nine requests":             {"o;o;o;o;o;o;o;o;o;p 1000", 1100},
		} {
			r := levelsOfResponses(t, r, "plain")
			for i, step := range strings.Split(c.steps, ";") {
				role, used, isSaid := strings.Cut(step, " ")
				cost := int64(100)
				if role == "p" || role == "q" {
					cost = 0
				}
				job, at := r.oneOf("", fmt.Sprint("j", i), cost)
				o := outcome{lease: job, result: done, claimedAt: at, response: "!" + role + " resp_1 m"}
				if isSaid {
					o.used = "input:" + used + ",output:0"
				}
				r.settle(o)
			}
			must.Equal(t, r.chargedNow(t)["b"], c.want, "%s: charged", name)
		}
		r = levelsOfResponses(t, r, "plain")
		settled := make([]any, 0, 20_000)
		for i := range 10_000 {
			settled = append(settled, fmt.Sprint("old_", i), "s 1")
		}
		r.hset("responses", settled...)
		for i := range 20 {
			job, at := r.oneOf("", fmt.Sprint("j", i), 100)
			r.settle(outcome{lease: job, result: done, claimedAt: at, response: fmt.Sprintf("!o resp_%d m", i)})
		}
		must.Equal(t, r.hlen("responses"), 10_000, "responses are kept")
		for i := range 20 {
			if !r.c.HExists(r.ctx, r.key("responses"), fmt.Sprint("resp_", i)).Val() {
				t.Errorf("response %d is open, and has made room", i)
			}
		}
		if ttl := r.c.PTTL(r.ctx, r.key("responses")).Val(); ttl <= 0 {
			t.Errorf("they expire in %s", ttl)
		}
	})
}

// One caller's flood of responses makes room among its own: it has half of them, and the responses of others are settled by their polls.
func TestResponsesAreSharedByCaller(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r = levelsOfResponses(t, r, "plain")
		send := func(id, caller, response string, cost int64) {
			t.Helper()
			r.pass(second)
			at := r.now()
			job := r.usedBy(entry{id: id, caller: caller, units: fmt.Sprintf("input:%d,output:0", cost)})[id]
			o := outcome{lease: job, result: done, claimedAt: at, response: response}
			if cost == 0 {
				o.used = "input:10,output:0"
			}
			r.settle(o)
		}
		const quiet = 3
		for i := range quiet {
			send(fmt.Sprint("quiet", i), bert, fmt.Sprintf("!o quiet_%d m", i), 100)
		}
		flood := make([]any, 0, 10_000)
		for i := range 4990 {
			flood = append(flood, fmt.Sprint("flood_", i), fmt.Sprintf("o%s %d", anna, r.now()+int64(i)))
		}
		r.hset("responses", append(flood, "#"+anna, 4990)...)
		for i := range 40 {
			send(fmt.Sprint("more", i), anna, fmt.Sprintf("!o more_%d m", i), 100)
		}
		all := r.hash("responses")
		held := 0
		for id, text := range all {
			if strings.HasPrefix(text, "o"+anna+" ") {
				held++
			}
			if strings.HasPrefix(id, "#") && (id == "#"+bert && text != fmt.Sprint(quiet) || id != "#"+bert && id != "#"+anna) {
				t.Errorf("%s: %s", id, text)
			}
		}
		if all["#"+anna] != fmt.Sprint(held) || held < 4990 || held > 5000 || len(all) != held+quiet+2 {
			t.Errorf("one caller has %d responses, counted as %s, of %d fields", held, all["#"+anna], len(all))
		}
		before := r.chargedNow(t)["b"]
		for i := range quiet {
			send(fmt.Sprint("poll", i), bert, fmt.Sprintf("!p quiet_%d m", i), 0)
		}
		must.Equal(t, r.chargedNow(t)["b"], before-quiet*90, "the polls of the quiet caller make of %d: its responses were forgotten", before)
	})
}
