package scripts_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// openBundle opens one, or says more of it, and returns the answer, with the counts of the bundle alone.
func (r *rig) openBundle(id, caller string, size int, url, tells string) string {
	r.t.Helper()
	in := lua.NewReader(r.run(lua.OpenBundle, r.keysOf(lua.OpenBundle), id, caller, size, url, r.withFlows(), tells))
	status := in.Int()
	if status != 0 {
		return fmt.Sprint(status)
	}
	switch code := in.Int(); {
	case code == 3:
		return fmt.Sprint(status, code, in.Int(), in.Int())
	case in.Left() > 0:
		return fmt.Sprint(status, " ", code, " ", countsOf(in.Text()))
	default:
		return fmt.Sprint(status, code)
	}
}

// countsOf are what stands in a bundle but for its times: whether it has finished, size, done, dead, dropped, cancelled, caller, URL.
func countsOf(text string) string {
	words := strings.SplitN(text, " ", 4)
	if len(words) < 4 {
		return text
	}
	finished := "open"
	if words[2] != "0" {
		finished = "finished"
	}
	return finished + " " + words[3]
}

// ends puts the end of a job of a bundle into the outbox.
func (r *rig) ends(name, bundle string) {
	r.t.Helper()
	r.hset("callback_texts", name, `0 1 AAAAAAAAAAAcn001~=&^ {"b":"`+bundle+`"}`+"\n{}\n")
	r.zadd("callbacks", name, 1)
}

// takeOut says of callbacks, each "name|counted", that they were moved on.
func (r *rig) takeOut(tells string, all ...string) {
	r.t.Helper()
	args := []any{0, 1000, r.withFlows(), tells}
	for _, one := range all {
		name, counted, _ := strings.Cut(one, "|")
		args = append(args, name, "", counted)
	}
	r.run(lua.MoveCallbacks, r.keysOf(lua.MoveCallbacks), args...)
}

// A bundle counts the end of each of its jobs once, whatever is sent twice, and tells once that it has finished.
func TestBundles(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.wants("a bucket that is not configured", r.openBundle("a", "-", 0, "", "all"), "1")
		r.configure(settings{})
		bundle := func(id string) string { return countsOf(r.field("bundles", id)) }

		r.wants("a new one", r.openBundle("a", "abcdefg", 0, "", "all"), "0 0 open 0 0 0 0 0 abcdefg ")
		r.wants("again", r.openBundle("a", "abcdefg", 0, "", "all"), "0 0 open 0 0 0 0 0 abcdefg ")
		r.wants("of another caller", r.openBundle("a", "-", 5, "", "all"), "0 1")
		r.wants("its size", r.openBundle("a", "abcdefg", 3, "https://a.example/", "all"), "0 0 open 3 0 0 0 0 abcdefg https://a.example/")
		r.wants("another size", r.openBundle("a", "abcdefg", 4, "", "all"), "0 0 open 4 0 0 0 0 abcdefg https://a.example/")

		for _, name := range []string{"1 1 x", "2 1 y", "3 1 z", "4 0 w", "5 2 y"} {
			r.ends(name, "a")
		}
		for range 2 { // the first reply was lost
			r.takeOut("own", "1 1 x|6 0 a", "2 1 y|5 0 a")
			r.wants("a done and a dead one", bundle("a"), "open 4 1 1 0 0 abcdefg https://a.example/")
		}
		r.takeOut("own", "3 1 z|8 0 a", "no such callback|6 0 a")
		r.wants("a dropped one", bundle("a"), "open 4 1 1 1 0 abcdefg https://a.example/")
		r.takeOut("own", "4 0 w|7 0 a")
		r.wants("a cancelled one", bundle("a"), "finished 4 1 1 1 1 abcdefg https://a.example/")
		r.takeOut("own", "5 2 y|6 1 a")
		r.wants("the dead one, redriven", bundle("a"), "finished 4 2 0 1 1 abcdefg https://a.example/")
		told := r.moveCallbacks(10, 1000)
		if len(told) != 1 || !strings.HasSuffix(told[0].name, " 0 a") || !strings.HasPrefix(told[0].text, "bundle\n\n") || countsOf(told[0].text[8:]) != "finished 4 1 1 1 1 abcdefg https://a.example/" {
			t.Fatalf("told is %q", told)
		}
		r.moveCallbacks(0, 1000, told[0].name, "")
		r.wants("the same size after the end", r.openBundle("a", "abcdefg", 4, "", "all"), "0 0 finished 4 2 0 1 1 abcdefg https://a.example/")
		r.wants("another size after the end", r.openBundle("a", "abcdefg", 5, "", "all"), "0 2 finished 4 2 0 1 1 abcdefg https://a.example/")

		// A redriven job may be counted before the death that it follows.
		r.openBundle("b", "-", 2, "", "own")
		r.ends("1 1 x", "b")
		r.ends("2 1 x", "b")
		r.takeOut("own", "2 1 x|6 1 b")
		r.wants("the second end first", bundle("b"), "open 2 1 -1 0 0 - ")
		r.takeOut("own", "1 1 x|5 0 b")
		r.wants("then the first one", bundle("b"), "open 2 1 0 0 0 - ")
	})
}

// The size may be said when all have ended, and only those are told that have somewhere to tell it.
func TestBundlesThatFinishLate(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		for _, tt := range []struct {
			tells, url string
			told       int
		}{{"none", "https://a.example/", 0}, {"own", "", 0}, {"own", "https://a.example/", 1}, {"all", "", 1}} {
			id := fmt.Sprint("of-", tt.tells, len(tt.url))
			r.openBundle(id, "-", 0, tt.url, tt.tells)
			r.ends("1 1 x", id)
			r.takeOut(tt.tells, "1 1 x|6 0 "+id)
			for range 2 {
				r.wants(id, r.openBundle(id, "-", 1, "", tt.tells), "0 0 finished 1 1 0 0 0 - "+tt.url)
			}
			told := r.moveCallbacks(10, 1000)
			must.Equal(t, len(told), tt.told, "%s: told is %q", id, told)
			for _, one := range told {
				r.moveCallbacks(0, 1000, one.name, "")
			}
		}
	})
}

// A bucket forgets bundles seven days after their last change, and takes no more than 10,000.
func TestBundlesAreForgotten(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		now := time.Unix(1_790_000_000, 0)
		after := func(d time.Duration) {
			now = now.Add(d)
			r.setTime(now.UnixMicro())
		}
		after(0)
		r.openBundle("old", "-", 0, "", "all")
		after(6 * 24 * time.Hour)
		r.openBundle("old", "-", 7, "", "all")
		r.openBundle("older", "-", 0, "", "all")
		r.zrem("bundle_ends", "older") // as after a change of pool
		after(6 * 24 * time.Hour)
		r.openBundle("new", "-", 0, "", "all")
		must.Equal(t, r.hlen("bundles"), 3, "are left after 6 days")
		after(25 * time.Hour)
		r.openBundle("new", "-", 1, "", "all")
		if names := r.c.HKeys(r.ctx, r.key("bundles")).Val(); len(names) != 2 || strings.Contains(fmt.Sprint(names), "old ") {
			t.Errorf("left after 7 days are %v", names)
		}
		after(8 * 24 * time.Hour)
		pairs, ends := make([]string, 0, 20_000), make([]redis.Z, 0, 10_000)
		for i := range 10_000 {
			pairs = append(pairs, fmt.Sprint("n", i), "1 1 0 0 0 0 0 0 - ")
			ends = append(ends, redis.Z{Member: fmt.Sprint("n", i), Score: 4e15})
		}
		r.hset("bundles", pairs)
		r.ok(r.c.ZAdd(r.ctx, r.key("bundle_ends"), ends...).Err())
		r.openBundle("n1", "-", 0, "", "all") // forgets what is old
		r.wants("one too many", r.openBundle("more", "-", 0, "", "all"), "0 3 10000 0")
		r.wants("one that is there", r.openBundle("n1", "-", 9, "", "all"), "0 0 open 9 0 0 0 0 - ")
	})
}

// One caller has no more bundles than it leaves free, and others still open some. What is forgotten counts no longer, whoever forgot it.
func TestBundlesAreShared(t *testing.T) {
	const other = "BcdefgH"
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		now := time.Unix(1_790_000_000, 0)
		r.setTime(now.UnixMicro())
		fill := func(caller string, score float64, n int) {
			pairs, ends, callers := make([]string, 0, 2*n), make([]redis.Z, n), make([]redis.Z, n)
			for i := range n {
				id := fmt.Sprint(caller, i)
				pairs = append(pairs, id, "1 1 0 0 0 0 0 0 "+caller+" ")
				ends[i], callers[i] = redis.Z{Member: id, Score: float64(now.Add(time.Hour).UnixMicro())}, redis.Z{Member: id, Score: score}
			}
			r.hset("bundles", pairs)
			r.ok(r.c.ZAdd(r.ctx, r.key("bundle_ends"), ends...).Err())
			r.ok(r.c.ZAdd(r.ctx, r.key("bundle_callers"), callers...).Err())
		}
		open := func(id, caller string) string { return r.openBundle(id, caller, 0, "", "all") }
		r.wants("the first", open("first", anna), "0 0 open 0 0 0 0 0 "+anna+" ")
		score := r.c.ZScore(r.ctx, r.key("bundle_callers"), "first").Val()
		fill(anna, score, 4999)
		r.wants("beyond the half", open("more", anna), "0 3 10000 5000")
		r.wants("one that is there", open("first", anna), "0 0 open 0 0 0 0 0 "+anna+" ")
		r.wants("of another caller", open("other", other), "0 0 open 0 0 0 0 0 "+other+" ")
		r.wants("of no caller", open("nobody's", "-"), "0 0 open 0 0 0 0 0 - ")
		fill(other, r.c.ZScore(r.ctx, r.key("bundle_callers"), "other").Val(), 2498)
		r.wants("the last of the other", open("last", other), "0 0 open 0 0 0 0 0 "+other+" ")
		r.wants("beyond a third", open("more", other), "0 3 10000 2500")
		// Redis has lost bundles of the first caller, but not their entries of its share.
		for i := range 4000 {
			r.c.HDel(r.ctx, r.key("bundles"), fmt.Sprint(anna, i))
			r.c.ZRem(r.ctx, r.key("bundle_ends"), fmt.Sprint(anna, i))
		}
		tries := 0
		for ; tries < 1000 && !strings.HasPrefix(open("again", anna), "0 0"); tries++ {
			r.pass(7)
		}
		if tries == 1000 {
			t.Error("bundles that are gone count for ever")
		}
		r.setTime(now.Add(2 * time.Hour).UnixMicro())
		for range 1000 {
			open("first", anna)
			r.pass(7)
		}
		if n, callers := r.hlen("bundles"), r.zcard("bundle_callers"); n > 10 || callers > 10 {
			t.Errorf("%d bundles are left, and %d callers of bundles", n, callers)
		}
	})
}
