package scripts_test

import (
	"fmt"
	"testing"

	"github.com/tundish-io/tundish/lua"
)

// Every change of limits has a number of its own, also after the conf was
// lost; what changes nothing has not.
func TestLimitsRev(t *testing.T) {
	t.Parallel()
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
			if got, err := r.c.HGet(r.ctx, r.key("settings"), "pin:l").Result(); err != nil || got != "{}" {
				t.Errorf("override %q, %v", got, err)
			}
			configure("[2]")
			fresh("the same under an override", false)
			override("")
			fresh("reset", true)
			override("")
			fresh("reset again", false)
			r.ok(r.c.Del(r.ctx, r.key("settings")).Err())
			r.pass(1000)
		}
	})
}

// A change that was made of limits that are others by now is not written, unless
// it is there already: its reply was lost.
func TestPinOfOldLimits(t *testing.T) {
	t.Parallel()
	onBothInCI(t, func(t *testing.T, r *rig) {
		override := func(text, of string) int64 {
			numbers, err := lua.Integers(r.run(lua.Override, r.keys("settings"), "l", text, of))
			r.ok(err)
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
		if again := override("{2}", of); again != second {
			t.Errorf("sent again it is answered %d, want %d", again, second)
		}
		if late := override("{3}", of); late != 0 {
			t.Errorf("one of old limits is answered %d", late)
		}
		if got := r.c.HGet(r.ctx, r.key("settings"), "pin:l").Val(); got != "{2}" {
			t.Errorf("overridden is %s", got)
		}
	})
}
