package scripts_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// bytesOfDead is what the dead letters hold, summed up, and what the counter says.
func (r *rig) bytesOfDead() (sum, counted int64) {
	r.t.Helper()
	ids, err := r.c.ZRange(r.ctx, r.key("dead"), 0, -1).Result()
	r.ok(err)
	if len(ids) > 0 {
		for _, hash := range []string{"body", "meta", "attempts"} {
			texts := must.Get(r.c.HMGet(r.ctx, r.key(hash), ids...).Result())(r.t)
			for i, text := range texts {
				if hash == "body" {
					sum += int64(len(ids[i]))
				}
				text, _ := text.(string)
				sum += int64(len(text))
			}
		}
	}
	counted, err = r.c.HGet(r.ctx, r.key("count"), "dead_bytes").Int64()
	if !errors.Is(err, redis.Nil) {
		r.ok(err)
	}
	return sum, counted
}

func (r *rig) wantBytesOfDead() {
	r.t.Helper()
	if sum, counted := r.bytesOfDead(); sum != counted {
		r.t.Fatalf("dead letters hold %d bytes, and %d are counted", sum, counted)
	}
}

// boundDead has the bucket obey bounds of its dead letters.
func (r *rig) boundDead(most, bytes, retention int64, drop bool) {
	r.t.Helper()
	r.hset("settings", "dead_capacity", most, "dead_max_bytes", bytes, "dead_retention", retention, "dead_drop", map[bool]int{true: 1}[drop])
}

// kill makes dead letters of new jobs, and returns when the last of them died.
func (r *rig) kill(ids ...string) int64 {
	r.t.Helper()
	r.put(ids...)
	for left := len(ids); left > 0; {
		c := r.claim(ask{want: 1000})
		left -= len(c.jobs)
		var outcomes []outcome
		for _, job := range c.jobs {
			outcomes = append(outcomes, outcome{lease: job, result: dead, last: `{"status":410}`})
		}
		r.settle(outcomes...)
		r.pass(200_000)
	}
	return r.now()
}

type trimmed struct{ old, full, more, there, bytes, most, mostBytes, drops int64 }

func (r *rig) trim(atMost, mostBytes int64) trimmed {
	r.t.Helper()
	reply := must.Get(lua.Integers(r.run(lua.TrimDead, r.keysOf(lua.TrimDead), atMost, mostBytes)))(r.t)
	return trimmed{reply[0], reply[1], reply[2], reply[3], reply[4], reply[5], reply[6], reply[7]}
}

// Whatever makes or takes away a dead letter counts its bytes.
func TestBytesOfDeadLetters(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 10_000})
		counted := func(what string, want int64) {
			t.Helper()
			if b := r.inspect(); b.dead != want || (b.deadBytes > 0) != (want > 0) {
				t.Errorf("%s: %d dead letters with %d bytes, want %d", what, b.dead, b.deadBytes, want)
			}
			r.wantBytesOfDead()
		}
		r.kill("settled", "dropped", "redriven")
		counted("settled", 3)
		r.enqueue(nil, entry{id: "expired", expires: 1, content: "some"})
		r.pass(second)
		if c := r.claim(ask{}); c.expired != 1 {
			t.Fatalf("%+v", c)
		}
		counted("expired", 4)
		r.put("poison")
		for range lastChance + 1 {
			r.pass(second)
			r.claim(ask{})
			r.end("poison")
			r.sweep(sweep{})
		}
		counted("poison", 5)
		r.cancel("dropped", "5")
		r.cancel("dropped", "5")
		counted("dropped", 4)
		r.redrive("redriven", "redriven")
		counted("redriven", 3)
		r.zrem("dead", "settled") // by hand
		if s := r.sweep(sweep{none: true, cursor: "0"}); s.repaired != 1 {
			t.Errorf("swept %+v", s)
		}
		counted("repaired", 3)
		r.boundDead(1, 0, 0, true)
		if got := r.trim(100, 1<<20); got.full != 2 || got.old != 0 || got.there != 1 {
			t.Errorf("trimmed %+v", got)
		}
		counted("trimmed", 1)
	})
}

// A counter that was lost is right again after a comparison, in chunks and while dead letters come and go.
func TestBytesOfDeadLettersAreMended(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 50_000, capacity: 10_000, inFlight: 10_000})
		ids := numbered(1300)
		for i := 0; i < len(ids); i += 100 {
			r.kill(ids[i : i+100]...)
		}
		r.hdel("count", "dead_bytes")
		rounds := 0
		for cursor := "0"; ; rounds++ {
			cursor = r.sweep(sweep{none: true, cursor: cursor}).cursor
			if errors.Is(r.c.HGet(r.ctx, r.key("count"), "dead_walk").Err(), redis.Nil) {
				break
			}
			// One that was summed up already, one that was not, and a new one.
			for _, id := range []string{fmt.Sprint("j", rounds), fmt.Sprint("j", 1299-rounds)} {
				must.Be(t, r.cancel(id, "5"), isDropped, "drop %s", id)
			}
			r.kill(fmt.Sprint("new", rounds))
			if cursor == "0" && rounds > 50 {
				t.Fatal("the comparison does not end")
			}
		}
		if rounds < 2 {
			t.Errorf("%d rounds", rounds)
		}
		r.wantBytesOfDead()
	})
}

// With as many dead letters as there may be no job is let in, however it is asked for; jobs that are in may die all the same.
func TestAdmissionIsClosedByDeadLetters(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 10_000, capacity: 100})
		r.boundDead(3, 0, 0, false)
		r.put("in1", "in2", "in3", "in4")
		codes := func(step string, want ...int64) {
			t.Helper()
			for i, e := range []entry{{id: step + "now"}, {id: step + "later", due: "+60000000"}, {id: "in4"}} {
				if a := r.enqueue(nil, e)[0]; a.code != want[i] {
					t.Errorf("%s: job %d: %+v, want code %d", step, i, a, want[i])
				}
			}
			// Alike, and with ids made for this batch.
			for way, made := range []bool{false, true} {
				keys, args := r.alike([]limit{per(1, 3600*second, 100)}, 1, 3, "")
				args[5] = way + 1
				kind := "c"
				if made {
					kind = "g"
				}
				id := fmt.Sprint(step, "alike", way)
				in := r.reader(lua.Enqueue, keys, append(args, id, fmt.Sprintf("%011d%sn001 \n{}", 0, kind))...)
				in.Int()
				if asOne := in.Int(); asOne == 1 != (want[0] == 1) {
					t.Errorf("%s: alike %d was decided as one: %d", step, way, asOne)
				} else if code := in.Int(); asOne == 0 && code != want[0] {
					t.Errorf("%s: alike %d: code %d", step, way, code)
				}
			}
		}
		codes("room", 1, 2, 3)
		for _, job := range r.claim(ask{want: 7}).jobs {
			if job.id != "in4" {
				r.settle(outcome{lease: job, result: dead})
			}
		}
		b := r.inspect()
		if b.dead <= 3 || b.deadCapacity != 3 || b.deadMaxBytes != 0 {
			t.Fatalf("%+v", b)
		}
		codes("full", 14, 14, 3)
		a := r.enqueue([]limit{per(1, 3600*second, 1)}, entry{id: "one"})[0]
		if a.code != 14 || a.position != b.dead || a.eta != 3 || a.wait != -60*second || a.limits[0][1] != 1 {
			t.Errorf("%+v: want that nothing is spent, and that the time is a guess", a)
		}

		// As many as ten times the capacity, by default; bounded by bytes; not when the oldest are dropped.
		r.boundDead(0, 0, 0, false)
		must.Equal(t, r.inspect().deadCapacity, 1000, "the capacity is")
		codes("ten times", 1, 2, 3)
		r.boundDead(0, r.inspect().deadBytes, 0, false)
		codes("bytes", 15, 15, 3)
		if a := r.enqueue(nil, entry{id: "one"})[0]; a.position != r.inspect().deadBytes || a.eta != a.position || a.wait != -60*second {
			t.Errorf("%+v", a)
		}
		r.boundDead(0, r.inspect().deadBytes+1, 0, false)
		codes("bytes left", 1, 2, 3)
		r.boundDead(3, 1, 0, true)
		codes("dropped", 1, 2, 3)
	})
}

// With a retention it is known when there is room: when it has ended for as many as there are too many.
func TestRefusalSaysWhenRetentionEnds(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		const patrol = 15 * second
		r.configure(settings{rateCount: 10_000, capacity: 100})
		r.kill("a")
		for i, id := range []string{"b", "c", "d"} {
			r.kill(id)
			r.ok(r.c.ZIncrBy(r.ctx, r.key("dead"), float64((i+1)*1000*second), id).Err())
		}
		scores := map[string]int64{}
		for _, z := range r.scored("dead") {
			scores[z.Member.(string)] = int64(z.Score)
		}
		for most, last := range map[int64]string{4: "a", 3: "b", 2: "c"} {
			r.boundDead(most, 0, 5000*second, false)
			before := r.now()
			a := r.enqueue(nil, entry{id: "x"})[0]
			at := scores[last] + 5000*second + patrol
			if a.code != 14 || a.wait > at-before || a.wait < at-r.now() {
				t.Errorf("with a bound of %d: %+v, want %d", most, a, at-before)
			}
		}
		// Of bytes it is not known how many have to go.
		r.boundDead(0, 1, 5000*second, false)
		if a := r.enqueue(nil, entry{id: "x"})[0]; a.code != 15 || a.wait > -patrol {
			t.Errorf("%+v", a)
		}
	})
}

// Dead letters go when their retention has ended, or the oldest when there are too many, in chunks; their ids are remembered.
func TestTrimDeadLetters(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		must.Equal(t, r.trim(10, 1000), (trimmed{}), "of a bucket that is not configured")
		r.configure(settings{rateCount: 10_000, capacity: 100})
		for i := range 10 {
			id := fmt.Sprint("d", i)
			r.kill(id)
			r.zadd("dead", id, r.now()-int64(10-i)*1000*second)
		}
		ids := func() string { return strings.Join(r.members("dead"), " ") }
		r.boundDead(6, 0, 0, false)
		if got := r.trim(10, 1<<20); got.old+got.full+got.more != 0 || got.there != 10 || got.most != 6 || got.drops != 0 {
			t.Errorf("refusing, for ever: %+v", got)
		}
		r.boundDead(6, 0, 8500*second, false)
		if got := r.trim(1, 1<<20); got.old != 1 || got.more != 1 || ids() != "d1 d2 d3 d4 d5 d6 d7 d8 d9" {
			t.Errorf("the first chunk: %+v, left %s", got, ids())
		}
		if got := r.trim(10, 1<<20); got.old != 1 || got.more != 0 || ids() != "d2 d3 d4 d5 d6 d7 d8 d9" {
			t.Errorf("the second: %+v, left %s", got, ids())
		}
		r.boundDead(6, 0, 0, true)
		if got := r.trim(10, 1<<20); got.full != 2 || got.old != 0 || got.drops != 1 || ids() != "d4 d5 d6 d7 d8 d9" {
			t.Errorf("too many: %+v, left %s", got, ids())
		}
		each := r.inspect().deadBytes / 6
		r.boundDead(6, 4*each, 0, true)
		if got := r.trim(10, 1); got.full != 1 || got.more != 1 {
			t.Errorf("too many bytes, of bodies that are large: %+v", got)
		}
		if got := r.trim(10, 1<<20); got.full != 1 || got.more != 0 || got.there != 4 || got.bytes != 4*each || got.mostBytes != 4*each || ids() != "d6 d7 d8 d9" {
			t.Errorf("too many bytes: %+v, left %s", got, ids())
		}
		b := r.inspect()
		if b.droppedOld != 2 || b.droppedFull != 4 || b.remembered != 6 {
			t.Errorf("%d and %d dropped, %d remembered", b.droppedOld, b.droppedFull, b.remembered)
		}
		r.wantBytesOfDead()
		r.wantStates(map[string]int64{"d0": isDropped, "d5": isDropped, "d6": isDead})
		if s := r.sweep(sweep{none: true, cursor: "0"}); s.repaired != 0 || s.missing != 0 {
			t.Errorf("swept %+v", s)
		}
	})
}
