package scripts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// A caller that makes up keys of a limit, as by a header, has no more of them than it leaves free: further ones share one, and the keys of
// others are their own.
func TestKeysOfOneCallerLeaveRoomForOthers(t *testing.T) {
	conform(t, func(t *testing.T, r *rig, a algorithm) {
		r.configure(settings{rateCount: 10_000, capacity: 10_000})
		l := a.window(1000, 1000*second)
		l.max, l.life = 20, lifeOf(1000*second)
		ask := func(caller, key string) (isShared bool) {
			t.Helper()
			l.key = key
			answer := r.enqueue([]limit{l}, entry{id: fmt.Sprint("j", nextClaim()), caller: caller})[0]
			must.Be(t, answer.code, lua.Queued, "%s: %+v", key, answer)
			return answer.limits[0][0] == lua.Shared+lua.Allowed
		}
		own := map[string]int{}
		for i := range 40 {
			for _, caller := range []string{loud, loud, loud, calm} {
				if i < 20 && caller == calm {
					continue // it comes when the other has made what it may
				}
				if !ask(caller, fmt.Sprint("k", caller, "-", nextClaim())) {
					own[caller]++
				}
			}
		}
		if own[loud] != 10 || own[calm] != 5 { // half, and half of the rest
			t.Errorf("keys of their own: %v", own)
		}
		if ask(third, "third") || ask("", "nobody") {
			t.Error("nothing is left for a third caller, or for none")
		}
		if ask(third, "third") { // it is known
			t.Error("a key lost its state")
		}
		text := r.c.Get(r.ctx, r.key("limit_keys")).Val()
		if n := len(r.c.Keys(r.ctx, r.key("limit:k")+"*").Val()); n != 15 || !strings.Contains(text, ":17:0:0 ") || !strings.Contains(text, " 000000:10:0:0") ||
			!strings.Contains(text, " 000001:5:0:0") {
			t.Errorf("%d states, counted as %q", n, text)
		}
	})
}

// A client that names the keys of others, such as a gateway, has all keys of a limit alone. Another one then has keys of its own too, up to twice
// as many together.
func TestKeysThatGatewaysNameAreShared(t *testing.T) {
	conform(t, func(t *testing.T, r *rig, a algorithm) {
		l := a.window(1000, 1000*second)
		l.max, l.life = 20, lifeOf(1000*second)
		own := func(namer string, keys int) (n int) {
			for i := range keys {
				l.namer, l.key = namer, fmt.Sprint("k", namer, "-", i)
				if i%2 == 0 {
					r.allow(l, 1, r.now())
				} else {
					r.allowAll(r.now(), []limit{l}, inquiry{of: 0, cost: 1, times: 1})
				}
				if len(r.shared) == 0 {
					n++
				}
			}
			return n
		}
		for _, c := range []struct {
			namer    string
			ask, has int
		}{{"000000", 30, 20}, {"000001", 30, 10}, {"000000", 30, 20}, {"000002", 30, 5}, {"000001", 10, 10}, {"", 3, 0}} {
			must.Equal(t, own(c.namer, c.ask), c.has, "%q has keys of its own of %d", c.namer, c.ask)
		}
	})
}

// What a caller has is counted over the spans as all keys are, and its keys that expired are forgotten.
func TestKeysOfACallerExpire(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 10_000, capacity: 10_000})
		l := per(1000, 1000*second, 1000)
		l.max, l.life = 20, lifeOf(1000*second)
		for span := range 6 {
			own := 0
			for i := range 15 {
				l.key = fmt.Sprint("k", span, "-", i)
				if a := r.enqueue([]limit{l}, entry{id: fmt.Sprint(span, "j", i), caller: loud})[0]; a.limits[0][0] == lua.Allowed {
					own++
				}
			}
			must.Equal(t, own, 10, "in span %d it has keys", span)
			r.pass(2 * l.life)
		}
	})
}
