package scripts_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// ended has jobs of a flow end, with bodies of some bytes.
func (r *rig) ended(flow string, bytes int, ids ...string) {
	r.t.Helper()
	r.complete(entry{}.in(r, flow), r.drain, bytes, ids...)
}

// complete has jobs end that are otherwise as one is.
func (r *rig) complete(as entry, claim func(ask) claimed, bytes int, ids ...string) {
	r.t.Helper()
	for _, id := range ids {
		as.id = id
		r.enqueue(nil, as)
		r.pass(second)
		jobs := claim(ask{want: 1}).jobs
		must.Be(r.t, len(jobs), 1, "claimed %v", jobs)
		r.settle(outcome{lease: jobs[0], result: done, kept: true, head: "head", body: strings.Repeat("x", bytes)})
	}
}

// resultsOfFlows are the ids of the results that each flow has, the oldest first. It fails where one of the structures knows of others.
func (r *rig) resultsOfFlows() map[string][]string {
	r.t.Helper()
	r.resultCounts()
	kept := r.hash("results")
	flows := r.hash("result_flows")
	ids, want := map[string][]string{}, map[string]float64{}
	for id, text := range kept {
		_, path, found := strings.Cut(flows[id], " ")
		if !found {
			r.t.Errorf("result %q has no flow: %q", id, flows[id])
		}
		ids[path] = append(ids[path], id)
		want["n"+path]--
		want["b"+path] += float64(len(id) + len(text))
	}
	for _, of := range ids {
		slices.SortFunc(of, func(a, b string) int { return strings.Compare(flows[a], flows[b]) })
	}
	shares := r.scored("result_shares")
	got := map[string]float64{}
	for _, share := range shares {
		got[share.Member.(string)] = share.Score
	}
	must.Equal(r.t, fmt.Sprint(got), fmt.Sprint(want), "the shares are %v, the results have %v", got, want)
	if n, ordered := len(flows), int(r.zcard("result_order")); n != len(kept) || ordered != len(kept) {
		r.t.Errorf("%d results, %d with flows, %d in order", len(kept), n, ordered)
	}
	return ids
}

// A flow with many results, or with large ones, drops its own oldest ones, and those of no other flow.
func TestALoudFlowDropsItsOwnResults(t *testing.T) {
	const odd = "1:a 5\nnäme" // a name that looks like an entry
	onBoth(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{rateCount: 1000}, flowSettings{})
		want := func(flow string, ids ...string) {
			t.Helper()
			if got := r.resultsOfFlows()[flow]; !slices.Equal(got, ids) {
				t.Errorf("of flow %q %q are kept, want %q", flow, got, ids)
			}
		}
		r.keepsResults(100_000*second, 10, 10_000)
		r.ended("quiet", 10, "q1", "q2")
		r.ended(odd, 10, "o1", "o2")
		r.ended("loud", 10, numbered(40)...)
		want("quiet", "q1", "q2")
		want(odd, "o1", "o2")
		want("loud", numbered(40)[34:]...)
		r.ended("second", 10, "s1", "s2", "s3", "s4", "s5", "s6", "s7")
		if of := r.resultsOfFlows(); len(of["loud"]) != 3 || len(of["second"]) != 3 {
			t.Errorf("two loud flows have %v", of)
		}
		want("quiet", "q1", "q2")

		// Large ones. The bytes are those of one flow, and fewer results are there than may be.
		r.keepsResults(100_000*second, 1000, 2000)
		r.ended("large", 600, "l1", "l2", "l3", "l4", "l5")
		want("quiet", "q1", "q2")
		want(odd, "o1", "o2")
		if of := r.resultsOfFlows()["large"]; len(of) < 2 || of[len(of)-1] != "l5" {
			t.Errorf("large results: %v", of)
		}
		r.ended("quiet", 10, "q3")
		want("quiet", "q1", "q2", "q3")

		// A bound that an operator lowers takes of all that have more than others.
		r.keepsResults(100_000*second, 6, 2000)
		r.ended("quiet", 10, "q4")
		if of := r.resultsOfFlows(); len(of) != 5 || len(of["quiet"]) < 1 || len(of[odd]) < 1 {
			t.Errorf("with room for 6: %v", of)
		}
		must.Equal[any](t, r.run(lua.DropResults, r.keysOf(lua.DropResults), "q4", "unknown"), int64(1), "dropped")
		want("quiet", r.resultsOfFlows()["quiet"]...)
		r.pass(100_000 * second)
		for r.run(lua.TrimResults, r.keysOf(lua.TrimResults), 2) != int64(0) { // in parts
			r.resultsOfFlows()
		}
		must.Equal(t, r.exists("results", "result_ends", "result_flows", "result_order", "result_shares"), 0, "keys are left")
	})
}

// In a bucket without flows a caller with many results, or with large ones, drops its own oldest ones, and those of no other caller.
func TestALoudCallerDropsItsOwnResults(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 1000})
		r.keepsResults(100_000*second, 10, 10_000)
		r.complete(entry{caller: calm}, r.claim, 10, "c1", "c2")
		r.complete(entry{caller: loud}, r.claim, 10, numbered(40)...)
		want := func(when string) {
			t.Helper()
			kept := r.resultsOfFlows()
			if got := kept[calm]; !slices.Equal(got, []string{"c1", "c2"}) {
				t.Errorf("%s: of another caller %q are kept", when, got)
			}
			if got := kept[loud]; len(got) == 0 {
				t.Errorf("%s: of the loud caller none is kept", when)
			}
		}
		want("many")
		r.keepsResults(100_000*second, 1000, 2000)
		r.complete(entry{caller: loud}, r.claim, 600, "l1", "l2", "l3", "l4", "l5")
		want("large")
	})
}

// Results whose flow Redis has lost make room while they are more than the results of any flow, and the shares hold behind them.
func TestResultsWithoutAFlow(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{rateCount: 1000}, flowSettings{})
		r.keepsResults(100_000*second, 6, 10_000)
		r.ended("a", 10, numbered(6)...)
		r.del("result_flows", "result_order", "result_shares")
		r.ended("b", 10, "b1", "b2", "b3", "b4", "b5", "b6", "b7")
		r.ended("quiet", 10, "q1")
		flows := must.Get(r.c.HVals(r.ctx, r.key("result_flows")).Result())(r.t)
		ofB := 0
		for _, flow := range flows {
			if strings.HasSuffix(flow, " b") {
				ofB++
			}
		}
		if counts := strings.Fields(r.resultCounts()); counts[0] != "6" || ofB < 2 || ofB > 4 || len(flows) != ofB+1 {
			t.Errorf("%v results, with flows %q", counts, flows)
		}
		r.del("result_order") // Redis has evicted it
		for n := range 8 {
			r.ended("b", 10, "again"+strconv.Itoa(n))
		}
		if counts := strings.Fields(r.resultCounts()); counts[0] != "6" {
			t.Errorf("%v results without an order", counts)
		}
	})
}
