package scripts_test

import (
	"fmt"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// Every change of limits has a number of its own, also after the conf was
// lost; what changes nothing has not.
func TestLimitsRev(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		rev := func() string {
			text, _ := r.c.HGet(r.ctx, r.key("settings"), "limits_rev").Result()
			return text
		}
		seen := map[string]bool{}
		fresh := func(step string, want bool) {
			t.Helper()
			if now := rev(); seen[now] == want {
				t.Errorf("%s: limits_rev %q, seen before: %t", step, now, seen[now])
			} else {
				seen[now] = true
			}
		}
		configure := func(limits string) {
			r.run(lua.Configure, r.keys("settings"), 1, 0, "", "", 1, "test", 0, "capacity", 5, "limits", limits)
		}
		override := func(text string) { r.run(lua.Override, r.keys("settings"), "l", text, "") }
		for range 2 {
			configure("[1]")
			fresh("first", true)
			configure("[1]")
			fresh("the same", false)
			configure("[2]")
			fresh("changed", true)
			override("{}")
			fresh("overridden", true)
			override("{}")
			fresh("overridden again", false)
			must.Equal(t, must.Get(r.c.HGet(r.ctx, r.key("settings"), "pin:l").Result())(t), "{}", "override")
			configure("[2]")
			fresh("the same under an override", false)
			override("")
			fresh("reset", true)
			override("")
			fresh("reset again", false)
			r.del("settings")
			r.pass(1000)
		}
	})
}

// A change that was made of limits that are others by now is not written, unless
// it is there already: its reply was lost.
func TestPinOfOldLimits(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		override := func(text, of string) int64 {
			numbers := must.Get(lua.Integers(r.run(lua.Override, r.keys("settings"), "l", text, of)))(r.t)
			return numbers[0]
		}
		first := override("{1}", "")
		if first == 0 {
			t.Fatal("the first is not written")
		}
		of := fmt.Sprint(first)
		second := override("{2}", of)
		if second <= first {
			t.Fatalf("the second has number %d after %d", second, first)
		}
		must.Equal(t, override("{2}", of), second, "sent again it is answered")
		must.Equal(t, override("{3}", of), 0, "one of old limits is answered")
		must.Equal(t, r.field("settings", "pin:l"), "{2}", "overridden is")
	})
}
