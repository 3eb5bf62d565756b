package scripts_test

import (
	"fmt"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// A max_in_flight that the configuration does not say rises with an override of the rate or of the burst, and goes back with it. One that
// the configuration or an operator says stays.
func TestInFlightFollowsOverrides(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		const rule = "15000000" // 15 s
		is := func(what, inForce, configured string) {
			t.Helper()
			got := r.c.HMGet(r.ctx, r.key("settings"), "max_in_flight", "own:max_in_flight").Val()
			must.Equal(t, fmt.Sprint(got), fmt.Sprint([]any{inForce, configured}), "%s: %v is in force and configured, want %s %s", what, got, inForce, configured)
		}
		const same = "<nil>"
		w := &writer{by: "a"}
		configure := func(number int, rule string) {
			t.Helper()
			r.write(w, "rate_count", 50, "rate_per", second, "burst", 1, "max_in_flight", number, "in_flight_rule", rule)
		}
		control := func(action string, args ...any) {
			t.Helper()
			r.run(lua.Control, r.keys("settings", "pace", "count", "outbox", "outbox_texts"), append([]any{"tundish:wake", "b", action, "anna"}, args...)...)
		}
		configure(750, rule)
		is("as configured", "750", same)
		control("set", "rate_count", 201, "rate_per", 2*second)
		is("a faster rate", "1508", "750")
		control("set", "rate_count", 201, "rate_per", 2*second)
		is("sent twice", "1508", "750")
		control("set", "burst", 4000)
		is("a larger burst", "4000", "750")
		control("reset", "burst")
		is("the burst is reset", "1508", "750")
		control("set", "max_in_flight", 9)
		is("an operator's own bound", "9", "750")
		control("set", "rate_count", 300, "rate_per", second)
		is("it stays", "9", "750")
		control("reset", "max_in_flight")
		is("it is reset", "4500", "750")
		control("set", "rate_count", 1, "rate_per", second)
		is("a slower rate", "750", same)
		control("set", "rate_count", 100, "rate_per", second)
		is("a faster one again", "1500", "750")

		// Reloads beside the override.
		configure(1000, "20000000")
		is("a longer time", "2000", "1000")
		configure(40, "")
		is("the configuration says a number", "40", same)
		configure(750, rule)
		is("and none again", "1500", "750")
		control("reset", "rate_count", "rate_per")
		configure(750, rule)
		is("as configured at last", "750", same)
	})
}
