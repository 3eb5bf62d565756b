package scripts_test

import (
	"fmt"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// letsInWithCallbacks has a flow put in jobs with callbacks, which are done at once, until one is refused or there are most of them.
// It returns how many got in and what the last answer was.
func (r *rig) letsInWithCallbacks(flow, prefix string, most int) (in int, last answer) {
	r.t.Helper()
	for in < most {
		job := entry{id: fmt.Sprintf("%s%d", prefix, in), callback: true}.in(r, flow)
		if last = r.enqueue(nil, job)[0]; last.code != 1 {
			return in, last
		}
		in++
		r.pass(second)
		for _, l := range r.drain(ask{}).jobs {
			r.settle(r.withCallback(l, done))
		}
	}
	return in, last
}

// The callbacks of a flow that wait count against the flow and its group, before they count against the bucket: a flow whose callbacks
// cannot be moved on leaves the places of the others.
func TestCallbacksCountAgainstTheirFlow(t *testing.T) {
	t.Parallel()
	const capacity, ofGroup, ofFlow = 100, 15, 10
	for _, level := range []string{"flows", "groups"} {
		t.Run(level, func(t *testing.T) {
			onBoth(t, func(t *testing.T, r *rig) {
				one, sister, other, full := "one", "", "other", int64(10)
				if level == "groups" {
					r.configureGroups(settings{capacity: capacity}, flowSettings{capacity: ofFlow}, flowSettings{capacity: ofGroup})
					one, sister, other = path("a", "one"), path("a", "sister"), path("b", "other")
				} else {
					r.configureFlows(settings{capacity: capacity}, flowSettings{capacity: ofFlow})
				}
				in, last := r.letsInWithCallbacks(one, "one", 3*capacity)
				t.Logf("%d of %d places of the bucket are callbacks of one flow; it is answered %d", in, capacity, last.code)
				if in != ofFlow || last.code != full || last.position != ofFlow || last.wait <= 0 {
					t.Errorf("%d jobs of one flow got in, then %+v", in, last)
				}
				// Many at once, those that come later, and a redrive: the same bound.
				alike := []entry{entry{id: "x"}.in(r, one), entry{id: "y", due: "+5000000"}.in(r, one), entry{id: "z"}.in(r, other)}
				if a := r.enqueue(nil, alike...); a[0].code != full || a[1].code != full || a[2].code != 1 {
					t.Errorf("%+v", a)
				}
				if sister != "" {
					if in, last := r.letsInWithCallbacks(sister, "sister", 3*capacity); in != ofGroup-ofFlow || last.code != 12 {
						t.Errorf("%d jobs of the other flow of the group got in, then %+v", in, last)
					}
				}
				// A flow has the places again that its callbacks leave. Sent twice, they leave them once.
				moveOn := func(atMost int) {
					var said []string
					for _, c := range r.moveCallbacks(atMost, 1<<20) {
						said = append(said, c.name, "")
					}
					for range 2 {
						r.moveCallbacks(0, 1, said...)
					}
				}
				moveOn(4)
				if in, last := r.letsInWithCallbacks(one, "again", 3*capacity); in != 4 || last.code != 10 && last.code != 12 {
					t.Errorf("after 4 callbacks were moved on %d got in, then %+v", in, last)
				}
				moveOn(100)
				must.Equal(t, r.exists("callbacks", "callback_texts", "callback_counts"), 0, "keys are left")
			})
		})
	}
}
