package scripts_test

import (
	"fmt"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// Flows, or groups, that wait for a turn by the settings of before go by the new ones within a second, and those that
// have nothing to send yet wait on.
func TestNewSettingsOfFlowsHoldAtOnce(t *testing.T) {
	t.Parallel()
	n := int(atLength(300, 5))
	type change struct{ before, after flowSettings }
	hour := int64(3600 * second)
	for name, c := range map[string]change{
		"rate":  {flowSettings{rateCount: 1, ratePer: hour}, flowSettings{rateCount: 100, ratePer: second}},
		"burst": {flowSettings{rateCount: 1, ratePer: hour}, flowSettings{rateCount: 1, ratePer: second / 2, burst: 5}},
		"quota": {flowSettings{quotas: fmt.Sprintf("1 %d;", hour)}, flowSettings{}},
	} {
		for _, grouped := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " of groups: ", grouped), func(t *testing.T) {
				onBothInCI(t, func(t *testing.T, r *rig) {
					configure := func(s flowSettings) {
						if grouped {
							r.configureGroups(wide, flowSettings{}, s)
						} else {
							r.configureFlows(wide, s)
						}
					}
					configure(c.before)
					r.claimFlows(ask{}, reserved{}) // begins the pace
					r.pass(2 * hour)
					for i := range n {
						flow := fmt.Sprint("f", i)
						if grouped {
							flow = path(flow, "x")
						}
						r.putIn(flow, 3, 0, named(fmt.Sprint("j", i, "-"), 2)...)
					}
					drain := func() (jobs int) {
						for range 40 {
							c := r.drain(ask{want: 500})
							jobs += len(c.jobs)
							if len(c.jobs) == 0 && c.next-c.now > second/10 {
								break
							}
							r.pass(max(min(c.next-c.now, 20_000), 2000))
						}
						return jobs
					}
					if jobs := drain(); jobs != n {
						t.Fatalf("%d jobs of %d flows left, each of which may send one", jobs, n)
					}
					r.pass(60 * second)
					must.Be(t, drain(), 0, "jobs left before their turn")
					configure(c.after)
					began := r.now()
					for jobs := 0; jobs < n; {
						jobs += drain()
						if took := r.now() - began; took > second {
							t.Fatalf("%d of %d flows have sent a second after they may", jobs, n)
						}
						if jobs < n {
							r.pass(2000)
						}
					}
					if left, err := r.c.HExists(r.ctx, r.key("settings"), "recheck").Result(); err != nil || left {
						drain()
						if left, err = r.c.HExists(r.ctx, r.key("settings"), "recheck").Result(); err != nil || left {
							t.Errorf("flows are looked at again and again: %v", err)
						}
					}
				})
			})
		}
	}
}

// A flow whose job waits for its own time is looked at, and stays where it was.
func TestRecheckedFlowWaitsForItsJob(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configureFlows(wide, flowSettings{rateCount: 1, ratePer: second})
		r.enqueue(nil, entry{id: "j", flow: "f", due: fmt.Sprint("+", 3600*second)})
		turn := r.turn("f")
		r.configureFlows(wide, flowSettings{rateCount: 2, ratePer: second})
		for range 3 {
			if c := r.drain(ask{}); len(c.jobs) != 0 {
				t.Fatalf("claimed %s", c.ids())
			}
		}
		if moved := r.turn("f") - turn; moved < 0 || moved > 1 {
			t.Errorf("its turn is %d µs later than before", moved)
		}
		if left, err := r.c.HExists(r.ctx, r.key("settings"), "recheck").Result(); err != nil || left {
			t.Errorf("recheck is left: %v", err)
		}
	})
}
