package scripts_test

import "testing"

// Two dispatchers see one step of the clock of Redis forwards, and one of them tells of it when the clock has long been set
// back: the engine's clock follows once, and nothing waits.
func TestStepsOfTheClockAreToldOnce(t *testing.T) {
	const hour = 3600 * second
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 10})
		r.put(numbered(20)...)
		claim := func(step string, a ask, known int64) {
			t.Helper()
			r.pass(500_000)
			a.want, a.horizon, r.steps = 1, 200_000, known
			if c := r.claim(a); len(c.jobs) != 1 || c.jobs[0].slot > r.now()+200_000 {
				t.Errorf("%s: claimed %q, next in %d µs", step, c.ids(), c.next-c.now)
			}
		}
		claim("before", ask{}, 0)
		before := r.steps
		r.pass(hour)
		claim("the first after the step", ask{}, before)
		r.pass(second) // the pause
		r.steps = before
		r.claim(ask{want: 1, stepped: hour}) // its slots of the wrong hour count
		claim("told by the other, too", ask{stepped: hour}, before)
		r.pass(-hour)
		claim("set back", ask{}, r.steps)
		claim("told late", ask{stepped: hour}, before)
		claim("after all", ask{}, r.steps)
	})
}
