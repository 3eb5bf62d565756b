package scripts_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// Jobs that are alike but for their flows leave the same behind as jobs that are decided one by one: where all get in, they
// are decided as one, and where one does not, one by one. Bounds are those of the bucket, of its flows and groups, and
// of how many of these there may be.
func TestAlikeJobsOfFlows(t *testing.T) {
	t.Parallel()
	for _, groups := range []bool{false, true} {
		t.Run(fmt.Sprint("groups ", groups), func(t *testing.T) {
			onBothInCI(t, func(t *testing.T, base *rig) {
				rapid.Check(t, func(rt *rapid.T) {
					bound := rapid.SampledFrom([]int64{0, 3, 9})
					s := settings{rateCount: 10, capacity: rapid.SampledFrom([]int64{8, 1000}).Draw(rt, "capacity")}
					flows := flowSettings{capacity: bound.Draw(rt, "of a flow"), maxFlows: rapid.SampledFrom([]int64{3, 1000}).Draw(rt, "flows")}
					group := flowSettings{capacity: bound.Draw(rt, "of a group")}
					together, apart := base.fresh(rt, fmt.Sprint("together", nextClaim())), base.fresh(rt, fmt.Sprint("apart", nextClaim()))
					for _, r := range []*rig{together, apart} {
						if groups {
							r.configureGroups(s, group, flows)
						} else {
							r.configureFlows(s, flows)
						}
					}
					for batch := range 3 {
						var entries []entry
						for i := range rapid.IntRange(1, 6).Draw(rt, "jobs") {
							name := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(rt, "flow")
							if groups {
								name = path(rapid.SampledFrom([]string{"g", "h"}).Draw(rt, "group"), name)
							}
							entries = append(entries, entry{id: fmt.Sprintf("j%d-%d", batch, i)}.in(together, name))
						}
						asOne, all := together.sendAlike(entries), true
						for _, a := range apart.enqueue(nil, entries...) {
							all = all && a.code == 1
						}
						if asOne != all {
							rt.Fatalf("decided as one: %t; one by one all got in: %t", asOne, all)
						}
						if diff := cmp.Diff(apart.parts(), together.parts()); diff != "" {
							rt.Fatalf("one by one (-) and as one (+): %s", diff)
						}
					}
				})
			})
		})
	}
}

// sendAlike enqueues jobs as alike, and reports whether they were decided as one.
func (r *rig) sendAlike(entries []entry) bool {
	r.t.Helper()
	var flows []string
	for _, e := range entries {
		if name := r.nameOf(e); !slices.Contains(flows, name) {
			flows = append(flows, name)
		}
	}
	keys, args := r.alike(nil, len(entries), 3, flows...)
	for i, e := range entries {
		args = append(args, e.id, fmt.Sprintf("%s%03d %s\npayload", e.mark(), i+1, e.header()))
		if len(flows) > 1 {
			args = append(args, slices.Index(flows, r.nameOf(e))+1)
		}
	}
	in := r.reader(lua.Enqueue, keys, args...)
	in.Int()
	asOne := in.Int() == 1
	if of := 4 * len(flows); asOne && in.Left() != of {
		r.t.Errorf("the answer has %d numbers, want %d", in.Left(), of)
	}
	return asOne
}

// parts is what a bucket holds of its flows and groups: their states, and the jobs of each.
func (r *rig) parts() map[string]string {
	r.t.Helper()
	flows := r.hash("flows")
	found := make(map[string]string, 2*len(flows))
	for name, state := range flows {
		found["flow "+name] = state
		ids := must.Get(r.c.LRange(r.ctx, r.names().Places(name)[2], 0, -1).Result())(r.t)
		must.Get(r.c.ZScore(r.ctx, r.key(r.due(name)), name).Result())(r.t)
		found["jobs of "+name] = fmt.Sprint(ids)
	}
	groups := r.hash("groups")
	for name, state := range groups {
		found["group "+name] = state
	}
	bodies := r.hlen("body")
	found["jobs"] = fmt.Sprint(bodies)
	return found
}
