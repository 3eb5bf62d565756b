package scripts_test

import (
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// More dead letters than dead_warn are an event, once until there are fewer again.
func TestMoreDeadLettersThanWanted(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 10_000, capacity: 100})
		r.notes("bucket.dead_letters")
		wants := func(step, want string) {
			t.Helper()
			for range 2 { // also where nothing has changed, or the reply was lost
				r.trim(10, 1<<20)
			}
			events := r.moveEvents()
			must.Equal(t, describe(events), want, "%s", step)
			r.moveEvents(events...)
			r.pass(61 * second)
		}
		r.kill("a", "b", "c")
		wants("without a number", "")
		r.control("set", "anna", "dead_warn", 3)
		wants("as many as the number", "")
		r.kill("d")
		wants("one more", "bucket.dead_letters=1")
		r.kill("e")
		wants("still above", "")
		r.control("set", "anna", "dead_warn", 10)
		wants("the number is raised", "")
		r.control("set", "anna", "dead_warn", 4)
		wants("above again", "bucket.dead_letters=1")
		if b := r.inspect(); b.overrides != "dead_warn >4 by anna" && b.overrides != "dead_warn 0>4 by anna" {
			t.Errorf("overrides %q", b.overrides)
		}
	})
}
