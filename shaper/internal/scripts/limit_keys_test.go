package scripts_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// lifeOf is how long a state may live at most, as package admission reckons it.
func lifeOf(micros int64) int64 { return 2*micros + 3*second }

// A limit never has more keys than it may have; those above share one; and a key
// that was admitted counts on its own until it expires. The model knows when each
// state expires; the count may keep one that expired for two spans.
func TestKeysAreBounded(t *testing.T) {
	conform(t, func(t *testing.T, base *rig, a algorithm) {
		rapid.Check(t, func(rt *rapid.T) {
			r := base.fresh(rt, fmt.Sprint("b", nextClaim()))
			const micros = 10 * second
			most := rapid.Int64Range(1, 4).Draw(rt, "max")
			life := lifeOf(micros)
			written := map[string]int64{} // key -> when it was last written
			now := int64(epoch)
			for range rapid.IntRange(1, 25).Draw(rt, "steps") {
				now += rapid.SampledFrom([]int64{0, 1, second, micros, life / 2, life - 1, life}).Draw(rt, "elapsed")
				at := now - rapid.SampledFrom([]int64{0, 0, 0, 1000}).Draw(rt, "jitter")
				var limits []limit
				var inquiries []inquiry
				for _, name := range rapid.SliceOfNDistinct(rapid.IntRange(0, 7), 1, 4, rapid.ID[int]).Draw(rt, "keys") {
					l := a.window(5, micros)
					l.key, l.max, l.life = "k"+strconv.Itoa(name), most, life
					limits = append(limits, l)
					inquiries = append(inquiries, inquiry{of: len(limits) - 1, cost: rapid.Int64Range(1, 6).Draw(rt, "cost"), times: 1})
				}
				for key, last := range written { // a real server's clock does not follow the test's
					if at-last >= life {
						r.del("limit:" + key)
						delete(written, key)
					}
				}
				got := r.allowAll(at, limits, inquiries...)
				for i, l := range limits {
					_, known := written[l.key]
					if slices.Contains(r.shared, int64(i+1)) {
						if known {
							rt.Fatalf("%s has a state and was asked as one of many", l.key)
						}
						continue
					}
					if got[i][0].verdict == allowed {
						written[l.key] = max(at, written[l.key])
					}
				}
				if int64(len(written)) > most {
					rt.Fatalf("%d keys live, want at most %d: %v", len(written), most, written)
				}
			}
		})
	})
}

// The room that is left by keys that expired is there again after two spans, and
// what is used all the time does not count twice.
func TestKeysMakeRoom(t *testing.T) {
	conform(t, func(t *testing.T, r *rig, a algorithm) {
		const micros = 10 * second
		life := lifeOf(micros)
		start := epoch - epoch%life + life
		shared := func(key string, at int64) bool {
			t.Helper()
			l := a.window(5, micros)
			l.key, l.max, l.life = key, 3, life
			r.allow(l, 1, at)
			return len(r.shared) > 0
		}
		for span := range int64(6) {
			at := start + span*life
			for i, key := range []string{"a", "b"} { // in each span
				if shared(key, at+int64(i)) {
					t.Fatalf("span %d: %s is one of many", span, key)
				}
			}
			if span == 0 && (shared("c", at+10) || !shared("d", at+11)) {
				t.Error("want room for 3")
			}
			if span == 1 && !shared("d", at+10) {
				t.Error("c was written less than two spans ago")
			}
			if span == 2 && (shared("d", at+10) || !shared("e", at+11)) {
				t.Error("want room for 1: c expired")
			}
		}
		// All that is lost with the count is the bound, for two spans.
		at := start + 6*life
		r.del("limit_keys")
		if shared("a", at) || shared("b", at) || shared("x", at) {
			t.Error("without a count there is room")
		}
		// The clock steps back: all count as if they came now, and are known.
		if shared("a", at-10*life) || !shared("y", at-10*life) {
			t.Error("after a step back: want a known and no room for y")
		}
	})
}

// Jobs are bounded as questions are: in one script, and by the usual case too.
func TestKeysOfJobs(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		l := per(5, 3600*second, 5)
		l.max, l.life = 3, 2*3600*second
		var shared, own []string
		for i := range 9 {
			l.key = "k" + strconv.Itoa(i%6)
			a := r.enqueue([]limit{l}, entry{id: fmt.Sprint("j", i)})[0]
			if a.code != 1 || a.limits[0][0]%4 != 0 {
				t.Fatalf("job %d: %+v", i, a)
			}
			if a.limits[0][0] == 4 {
				shared = append(shared, l.key)
			} else {
				own = append(own, fmt.Sprint(l.key, " ", a.limits[0][1]))
			}
		}
		must.Equal(t, fmt.Sprint(own, shared), "[k0 4 k1 4 k2 4 k0 3 k1 3 k2 3] [k3 k4 k5]", "own")
		// What they share is one state: 2 of 5 are left there.
		l.key = "new"
		if a := r.enqueue([]limit{l}, entry{id: "dear", cost: 3})[0]; a.code != 5 || a.limits[0][0] != 5 || a.limits[0][1] != 2 {
			t.Errorf("what is shared: %+v", a)
		}
		var states []string
		for _, key := range r.c.Keys(r.ctx, r.key("limit")+"*").Val() {
			states = append(states, strings.TrimPrefix(key, r.key("limit")))
		}
		slices.Sort(states)
		must.Equal(t, fmt.Sprint(states), "[:k0 :k1 :k2 :overflow _keys]", "there are")
		if ttl := r.c.PTTL(r.ctx, r.key("limit_keys")).Val(); ttl.Microseconds() < 2*l.life || ttl.Microseconds() > 2*l.life+2*second {
			t.Errorf("the count expires in %s", ttl)
		}
		// The usual case leaves a new key to the others.
		keys, args := r.alike([]limit{l}, 1, 3, "")
		in := r.reader(lua.Enqueue, keys, append(args[:5:5], append([]any{"2"}, append(args[6:], "u1", "fffffffffffgn001 1\nx")...)...)...)
		if now, asOne := in.Int(), in.Int(); now == 0 || asOne != 0 {
			t.Error("a new key above the bound was decided as one")
		}
	})
}
