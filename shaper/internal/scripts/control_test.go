package scripts_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// A paused bucket hands out nothing new, and all else goes on: what was claimed
// can be asked for again, extended, settled and swept; jobs come in until the
// bucket is full, and are told no time.
func TestPause(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 1000, burst: 3, capacity: 8, scheduled: 1})
		r.put(numbered(5)...)
		r.pass(second)
		before := r.claim(ask{want: 2})
		if len(before.jobs) != 2 || before.rateCount != 1000 || before.ratePer != second {
			t.Fatalf("claimed %+v", before)
		}
		for range 2 { // sent twice, it stays paused since the first time
			r.pause()
			if b := r.inspect(); b.paused > b.now || b.paused < before.now || b.by != "anna" || b.reason != "tests" {
				t.Errorf("bucket %+v", b)
			}
		}
		if since := r.inspect().paused; r.control("pause", "bert", "again")[0] != since || r.inspect().by != "bert" {
			t.Errorf("paused again: %+v", r.inspect())
		}

		r.pass(second)
		if c := r.claim(ask{}); len(c.jobs) != 0 || c.next != 0 || c.inFlight != 2 {
			t.Errorf("claimed from a paused bucket: %+v", c)
		}
		must.Equal(t, r.claim(ask{claim: before.jobs[0].claim, want: 2}).ids(), before.ids(), "asked again for what was claimed")
		if got := r.extend(second, before.jobs...); fmt.Sprint(got) != "[1 1]" {
			t.Errorf("extend %v", got)
		}
		r.settle(outcome{lease: before.jobs[0], result: done})
		r.end(before.jobs[1].id)
		if s := r.sweep(sweep{}); s.takenBack != 1 {
			t.Errorf("swept %+v", s)
		}
		for i, a := range r.enqueue(nil, numberedEntries("new", 5)...) {
			want := answer{code: 1, position: int64(4 + i)}
			if i == 4 {
				want = answer{code: 7, position: 8, eta: 8} // 8 of 8, and no time to come back
			}
			must.Equal(t, fmt.Sprint(a), fmt.Sprint(want), "job %d: %+v, want %+v", i, a, want)
		}
		if a := r.enqueue(nil, entry{id: "s1", due: "+9000000"}, entry{id: "s2", due: "+9000000"}); a[0].eta != 0 || a[0].code != 2 ||
			a[1].code != 8 || a[1].wait != 0 || a[1].position != 1 || a[1].eta != 1 {
			t.Errorf("scheduled: %+v", a)
		}
		if j := r.job("j4"); j.instant != 0 || j.paused == 0 || j.by != "bert" || j.reason != "again" || j.inFlight != 0 || j.maxInFlight != 1000 {
			t.Errorf("job %+v", j)
		}

		// Resumed, it has its burst, and not what the pause was worth.
		r.pass(60 * second)
		if was := r.control("resume", "anna")[0]; was == int64(0) {
			t.Error("it was not paused")
		}
		must.Equal[any](t, r.control("resume", "anna")[0], int64(0), "it was still paused")
		c := r.claim(ask{horizon: 1500})
		var at []int64
		for _, job := range c.jobs {
			at = append(at, job.slot-c.now)
		}
		must.Equal(t, fmt.Sprint(at), "[0 0 0 1000]", "slots %v after the pause, want three at once and one a millisecond later", at)
		if a := r.enqueue(nil, entry{id: "late"}); a[0].eta == 0 && a[0].wait == 0 {
			t.Errorf("no time is told after the pause: %+v", a)
		}
	})
}

func numberedEntries(prefix string, n int) []entry {
	jobs := make([]entry, n)
	for i := range jobs {
		jobs[i] = entry{id: fmt.Sprint(prefix, i)}
	}
	return jobs
}

// Jobs that are alike travel as one, and are told no time either.
func TestPauseTellsJobsThatAreAlikeNoTime(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 1000})
		for _, paused := range []bool{false, true} {
			if paused {
				r.pause()
			}
			keys, args := r.alike(nil, 1, 3, "")
			in := r.reader(lua.Enqueue, keys, append(args, fmt.Sprint("a", paused), "00000000000cn001 \n")...)
			if now, alike, first, slot := in.Int(), in.Int(), in.Int(), in.Int(); alike != 1 || (slot == 0) != paused || now == 0 || first > 1 {
				t.Errorf("paused %t: alike %d, position %d, slot %d", paused, alike, first, slot)
			}
		}
	})
}

// What an operator sets stays over what configurations say, until it is taken
// back; then what the last one says is in force.
func TestSet(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 7, ratePer: 60 * second, capacity: 10, burst: 2, revision: 5})
		want := func(step string, rate, per, capacity, burst int64, overrides string) {
			t.Helper()
			if b := r.inspect(); b.rateCount != rate || b.ratePer != per || b.capacity != capacity || b.burst != burst || b.overrides != overrides {
				t.Errorf("%s: %d/%d, capacity %d, burst %d, overrides %q", step, b.rateCount, b.ratePer, b.capacity, b.burst, b.overrides)
			}
		}
		want("configured", 7, 60*second, 10, 2, "")
		const rate, bound = "rate_count 7>20 by anna, rate_per 60000000>1000000 by anna", "capacity 10>99 by anna"
		for i, before := range []string{"[0 7 20 60000000 1000000 10 99 1 1 1]", "[0 20 20 1000000 1000000 99 99 0 0 0]"} { // sent twice
			got := r.control("set", "anna", "rate_count", 20, "rate_per", second, "capacity", 99)
			must.Equal(t, fmt.Sprint(got), before, "set, time %d: %v", i+1, got)
			want("set", 20, second, 99, 2, rate+", "+bound)
		}
		for range 3 { // an old configuration that starts in a loop
			if got := r.configure(settings{rateCount: 1, capacity: 1, burst: 9, revision: 4}); got[0] != 1 {
				t.Errorf("an older configuration: %v", got)
			}
			want("an older configuration", 20, second, 99, 2, rate+", "+bound)
		}
		r.configure(settings{rateCount: 8, ratePer: 60 * second, capacity: 11, burst: 3, revision: 6})
		want("a newer one", 20, second, 99, 3, "rate_count 8>20 by anna, rate_per 60000000>1000000 by anna, capacity 11>99 by anna")
		r.control("set", "bert", "capacity", 50)
		want("set again", 20, second, 50, 3, "rate_count 8>20 by anna, rate_per 60000000>1000000 by anna, capacity 11>50 by bert")
		for range 2 {
			r.control("reset", "bert", "rate_count", "rate_per", "burst")
			want("rate reset", 8, 60*second, 50, 3, "capacity 11>50 by bert")
		}
		r.configure(settings{rateCount: 9, capacity: 12, burst: 3, revision: 7})
		want("the rate follows again", 9, second, 50, 3, "capacity 12>50 by bert")
		must.Equal(t, fmt.Sprint(r.control("reset", "bert", "capacity")), "[0 50 12 1]", "reset")
		want("all reset", 9, second, 12, 3, "")
	})
}

// A new rate holds from the next slot on.
func TestSetRate(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		const hour = 3600 * second
		r.configure(settings{rateCount: 1, ratePer: hour, burst: 1})
		r.put(numbered(20)...)
		r.pass(hour)
		if c := r.claim(ask{}); len(c.jobs) != 0 || c.next-c.now < hour-2*second { // a new pace starts empty
			t.Fatalf("claimed %+v", c)
		}
		r.hset("pace", "slot", r.now()-second, "frac", 0, "rate", "1/3600000000")
		if c := r.claim(ask{}); len(c.jobs) != 0 || c.next-c.now < hour-3*second {
			t.Fatalf("claimed %+v", c)
		}
		r.control("set", "anna", "rate_count", 50, "rate_per", second)
		c := r.claim(ask{horizon: 100_000})
		if len(c.jobs) < 5 || len(c.jobs) > 6 || c.jobs[1].slot-c.jobs[0].slot != 20_000 {
			t.Errorf("1/h to 50/s: claimed %+v", c)
		}
		last := c.jobs[len(c.jobs)-1].slot
		r.control("set", "anna", "rate_count", 1, "rate_per", hour)
		if c := r.claim(ask{}); len(c.jobs) != 0 || c.next < last+hour-second || c.next > last+hour+second {
			t.Errorf("50/s to 1/h: claimed %+v, the last slot was %d", c, last)
		}
	})
}

func TestControlOfNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		for _, args := range [][]any{{"pause", "anna", "why"}, {"resume", "anna"}, {"set", "anna", "capacity", 1}, {"reset", "anna", "capacity"}} {
			reply, ok := r.run(lua.Control, r.keysOf(lua.Control), append([]any{"tundish:wake", r.name}, args...)...).([]any)
			if !ok || fmt.Sprint(reply) != "[1]" {
				t.Errorf("%v of a bucket that is not there: %v", args, reply)
			}
		}
		if keys, err := r.c.Keys(r.ctx, "*").Result(); err != nil || len(keys) > 0 {
			t.Errorf("left %v, %v", keys, err)
		}
	})
}

// Out of memory, an operator can pause, change and purge.
func TestControlOutOfMemory(t *testing.T) {
	t.Parallel()
	r := realRig(t)
	r.configure(settings{rateCount: 100_000})
	r.put(numbered(300)...)
	r.putAt("+9000000", "l1", "l2")
	r.fill()
	keys, args := r.enqueueArgs(nil, []entry{{id: "new"}})
	if _, err := lua.Enqueue.Run(r.ctx, r.c, nil, keys, args...); !redis.HasErrorPrefix(err, "OOM") {
		t.Fatalf("the server has memory: %v", err)
	}
	r.pause()
	if c := r.claim(ask{}); len(c.jobs) != 0 {
		t.Errorf("claimed %q", c.ids())
	}
	r.control("set", "anna", "capacity", 5)
	r.control("reset", "anna", "capacity")
	r.resume()
	if p := r.purgeAll(purge{id: "p", atMost: 100}); p.done != 302 {
		t.Errorf("purged %+v", p)
	}
	if b := r.inspect(); b.unfinished != 0 || b.scheduled != 0 || b.purged != 302 {
		t.Errorf("bucket %+v", b)
	}
}

// Changes within a minute of each other are one series: a bucket whose settings change all the time is not judged from its last change on.
func TestChangesAreOneSeries(t *testing.T) {
	t.Parallel()
	r := realRig(t).fresh(t, fmt.Sprint("b", nextClaim()))
	r.setTime(epoch)
	r.configure(settings{rateCount: 10, capacity: 100})
	changing := func() int64 {
		return r.answerOf(r.run(lua.InspectBucket, r.keysOf(lua.InspectBucket, ""), append([]any{r.member()}, changeable...)...)).Int("changing")
	}
	must.Equal(t, changing(), 0, "before a change")
	began := r.now()
	for i := range 20 {
		r.control("set", "anna", "capacity", 200+i)
		must.Equal(t, changing(), began, "in a series")
		r.pass(20 * second)
	}
	r.pass(60 * second)
	r.control("set", "anna", "capacity", 300)
	must.Equal(t, changing(), r.now(), "after a quiet minute")
}
