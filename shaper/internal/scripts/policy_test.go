package scripts_test

import (
	"fmt"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// A limit in shadow mode says what it would do and refuses nobody; it spends
// what it would allow.
func TestShadowLimit(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		strict, loose := per(1, 60*second, 1), per(1, 60*second, 3)
		strict.key, loose.key, strict.shadow = "strict", "loose", 1
		limits := []limit{strict, loose}
		for i, want := range []struct{ code, shadow, left int64 }{
			{1, allowed, 0}, {1, refused, 0}, {1, refused, 0}, {5, refused, 0}, {6, impossible, 0},
		} {
			cost := int64(1)
			if want.code == 6 {
				cost = 4
			}
			a := r.enqueue(limits, entry{id: fmt.Sprint("j", i), cost: cost})[0]
			if a.code != want.code || a.limits[0][0] != want.shadow || a.limits[0][1] != want.left {
				t.Errorf("job %d: %+v, want %+v", i, a, want)
			}
		}
		// What the other limit refuses is not spent here either.
		other := per(1, 60*second, 2)
		other.key, other.shadow = "other", 1
		if a := r.enqueue([]limit{other, loose}, entry{id: "late"})[0]; a.code != 5 || a.limits[0][1] != 2 {
			t.Errorf("%+v", a)
		}
		// A batch of jobs that are alike, of which the shadow allows one only.
		all := per(1, 60*second, 1)
		all.key, all.shadow = "all", 1
		if got, _ := r.enqueueAlike(all, 5); got != 5 {
			t.Errorf("%d of 5 admitted", got)
		}
	})
}

// A key number of 0 is a limit that does not ask this caller.
func TestExemptCaller(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		keys, _ := r.enqueueKeys(nil, "")
		in := r.reader(lua.Enqueue, keys, "tundish:wake", r.name, "", 1, 2, 1, "0q", 1, "", 0, 3, 0,
			"a", fmt.Sprintf("%011dcn001 \n", 0), "b", fmt.Sprintf("%011dcn002 \n", 0))
		in.Int()
		must.Be(t, in.Int(), 1, "not decided as one")
		for range 4 {
			in.Int()
		}
		if remaining, reset := in.Int(), in.Int(); remaining != -1 || reset != 0 || in.Err() != nil {
			t.Errorf("remaining %d, reset %d, %v", remaining, reset, in.Err())
		}
		in = r.reader(lua.Enqueue, keys, "tundish:wake", r.name, "", 1, 1, 0, "0q", 1, "", 0,
			"c", fmt.Sprintf("%011dcn001 \n", 0), 3, 1, 0, "", 1_000_000, "")
		in.Int()
		in.Int()
		must.Equal(t, in.Int(), 1, "code")
	})
}

// The fuller the bucket, the higher the priority that still gets in, and the
// wait is until there is room for it.
func TestShedding(t *testing.T) {
	const critical, high, normal, low = 1, 2, 3, 4
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{capacity: 10, rateCount: 10, shed: [3]int64{85, 75, 65}}) // 9, 8 and 7 jobs
		n := 0
		send := func(priority int, want int64) answer {
			t.Helper()
			n++
			a := r.enqueue(nil, entry{id: fmt.Sprint("j", n), priority: priority})[0]
			if a.code != want {
				t.Errorf("job %d, priority %d: %+v, want code %d", n, priority, a, want)
			}
			return a
		}
		for range 7 {
			send(low, 1)
		}
		before := r.now()
		lowest := send(low, 9)
		send(normal, 1)
		send(normal, 9)
		send(high, 1)
		if a := send(high, 9); a.wait < lowest.wait {
			t.Errorf("high waits for %d, low earlier for %d", a.wait, lowest.wait)
		}
		again := send(low, 9)
		if want := lowest.wait + 2*100_000; again.wait < want-(r.now()-before) || again.wait > want {
			t.Errorf("with two more jobs low waits for %d, before for %d", again.wait, lowest.wait)
		}
		send(critical, 1)
		send(critical, 7)
		if a := r.enqueue(nil, entry{id: "later", priority: low, due: "+9000000"})[0]; a.code != 2 {
			t.Errorf("a job for later has a bound of its own: %+v", a)
		}
		if a := r.enqueue(nil, entry{id: "j1", priority: low})[0]; a.code != 3 {
			t.Errorf("a job that is there is never shed: %+v", a)
		}
	})
}

// Who knows other limits than are in force decides nothing.
func TestStaleLimits(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		r.hset("settings", "limits_rev", "17")
		keys, args := r.enqueueArgs(nil, []entry{{id: "a"}})
		for rev, want := range map[string]int64{"": 2, "16": 2, "17": 0} {
			args[2] = rev
			reply := must.Get(lua.Enqueue.Run(r.ctx, r.c, nil, keys, args...))(r.t)
			must.Equal(t, lua.NewReader(reply).Int(), want, "limits_rev %q", rev)
		}
	})
}
