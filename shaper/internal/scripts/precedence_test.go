package scripts_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A job's position is how many jobs leave its flow first: whatever their priorities, whenever they came, and also those that came with a
// delay and are due. The receipt of the last one tells the same.
func TestPositionIsTheOrderOfDeparture(t *testing.T) {
	t.Parallel()
	onReal(t, func(t *testing.T, base *rig) {
		rapid.Check(t, func(rt *rapid.T) {
			r, flow := base.fresh(rt, fmt.Sprint("p", nextClaim())), ""
			s := settings{rateCount: 1000, burst: 500}
			if rapid.Bool().Draw(rt, "flows") {
				flow = "f"
				r.configureFlows(s, flowSettings{})
			} else {
				r.configure(s)
			}
			r.obeys("aging", fmt.Sprint(rapid.SampledFrom([]int{0, 1, 7}).Draw(rt, "aging")*second))
			there := map[string]int64{} // id -> how many were told to leave first
			come := func(id, due string) {
				r.pass(rapid.Int64Range(1, 2*second).Draw(rt, "later"))
				e := entry{id: id, due: due, flow: flow, priority: rapid.IntRange(1, 4).Draw(rt, "priority")}
				there[id] = r.enqueue(nil, e)[0].position
			}
			ids := numbered(rapid.IntRange(0, 40).Draw(rt, "jobs"))
			for _, id := range ids {
				come(id, rapid.SampledFrom([]string{"", "", "", "+1"}).Draw(rt, "due"))
			}
			for _, id := range ids {
				if rapid.IntRange(0, 9).Draw(rt, "cancelled") == 0 {
					r.cancel(id, "")
					delete(there, id)
				}
			}
			come("last", "")
			for id := range there {
				if told := r.job(id).position; id == "last" && told != there[id] {
					rt.Errorf("the receipt told position %d, and the job %d", there[id], told)
				} else {
					there[id] = told // -1 of one that is due
				}
			}
			left := strings.Fields(r.claimAll(ask{horizon: 200_000}).ids())
			if len(left) != len(there) {
				rt.Errorf("%d of %d jobs left", len(left), len(there))
			}
			for at, id := range left {
				if told := there[id]; told >= 0 && told != int64(at) {
					rt.Errorf("%s was told that %d leave first, and %d did", id, told, at)
				}
			}
		})
	})
}
