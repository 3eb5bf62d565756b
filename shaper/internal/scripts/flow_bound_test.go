package scripts_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/stored"
)

// However jobs come: the bounds hold, a flow has as many as get in, and a flow is in the turn queue if and
// only if it has something. The answers are those of a simple model.
func TestFlowBoundsModel(t *testing.T) {
	t.Parallel()
	base := realRig(t)
	rapid.Check(t, func(rt *rapid.T) {
		r := base.fresh(rt, fmt.Sprint("f", nextClaim()))
		f := flowSettings{capacity: rapid.Int64Range(0, 4).Draw(rt, "flow capacity"), maxFlows: rapid.Int64Range(1, 4).Draw(rt, "flows")}
		s := settings{capacity: rapid.Int64Range(1, 12).Draw(rt, "capacity"), scheduled: rapid.Int64Range(1, 5).Draw(rt, "scheduled")}
		r.configureFlows(s, f)
		names := []string{"a", "b", "a b", "", "ü"}
		there := map[string][2]int64{}
		known := map[string]bool{}
		var unfinished, scheduled int64
		for range rapid.IntRange(1, 8).Draw(rt, "batches") {
			var jobs []entry
			for range rapid.IntRange(1, 8).Draw(rt, "jobs") {
				jobs = append(jobs, entry{
					id: fmt.Sprint("j", rapid.IntRange(0, 30).Draw(rt, "id")), priority: rapid.IntRange(1, 4).Draw(rt, "priority"),
					flow: rapid.SampledFrom(names).Draw(rt, "flow"), due: rapid.SampledFrom([]string{"", "", "+60000000"}).Draw(rt, "due"),
				})
			}
			for i, a := range r.enqueue(nil, jobs...) {
				e := jobs[i]
				counts, isNew := there[e.flow], true
				if _, ok := there[e.flow]; ok {
					isNew = false
				}
				var want int64 = 1
				switch {
				case known[e.id]:
					want = 3
				case e.due != "" && scheduled >= s.scheduled:
					want = 8
				case e.due == "" && unfinished >= s.capacity:
					want = 7
				case e.due == "" && f.capacity > 0 && counts[0] >= f.capacity:
					want = flowFull
				case e.due != "" && f.capacity > 0 && counts[1] >= f.capacity:
					want = flowScheduledFull
				case isNew && int64(len(there)) >= f.maxFlows:
					want = tooManyFlows
				case e.due != "":
					want = 2
				}
				must.Be(rt, a.code, want, "%+v: code", e)
				switch want {
				case 1:
					counts[0]++
					unfinished++
				case 2:
					counts[1]++
					scheduled++
				default:
					continue
				}
				there[e.flow], known[e.id] = counts, true
			}
		}
		states := r.hash("flows")
		must.Be(rt, len(states), len(there), "flows %v, want %v", states, there)
		now, waiting := r.now(), 0
		for _, flow := range names {
			counts, ok := there[flow]
			if want := (stored.Flow{Unfinished: counts[0], Scheduled: counts[1], Filled: "."}).String(); ok && !strings.HasPrefix(states[flow], want) {
				rt.Fatalf("%q is %q, want %q", flow, states[flow], want)
			}
			turn := r.turnFrom(flow, now)
			if ok != (turn != -1) || counts[0] > 0 && turn > 0 || ok && counts[0] == 0 && turn < 50*second {
				rt.Fatalf("%q with %v has its turn in %d", flow, counts, turn)
			}
			for _, key := range r.names().Places(flow)[:4] {
				n := must.Get(r.c.LLen(r.ctx, key).Result())(r.t)
				waiting += int(n)
			}
		}
		must.Be(rt, int64(waiting), unfinished, "%d jobs in lists", waiting)
	})
}
