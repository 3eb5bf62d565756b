package scripts_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// The same id is the same job in whatever state that is; with other content it
// is refused. Neither spends anything.
func TestSameIDSameJob(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 10_000})
		r.put("waiting", "cancelled")
		r.cancel("cancelled", "")
		r.putAt("+60000000", "scheduled")
		r.put("flying", "retrying", "dead", "done", "dropped")
		for _, job := range r.claim(ask{}).jobs {
			switch job.id {
			case "waiting":
				r.settle(outcome{lease: job, result: returned})
			case "retrying":
				r.settle(outcome{lease: job, result: retry, delay: 60 * second})
			case "dead", "dropped":
				r.settle(outcome{lease: job, result: dead})
			case "done":
				r.settle(outcome{lease: job, result: done})
			}
		}
		r.cancel("dropped", "5")
		r.put("fresh")
		states := map[string]int64{
			"waiting": isQueued, "fresh": isQueued, "scheduled": isScheduled, "flying": isInFlight, "retrying": isRetrying,
			"dead": isDead, "done": isDone, "cancelled": isCancelled, "dropped": isDropped,
		}
		r.wantStates(states)
		l := per(1, second, 5)
		before := r.inspect()
		for id, state := range states {
			got := r.enqueue([]limit{l}, entry{id: id}, entry{id: id, content: "other"}, entry{id: id, due: "+5"})
			for i, want := range []answer{{code: 3, position: state}, {code: 4}, {code: 3, position: state}} {
				want.limits = [][4]int64{{3, 0, 0, 0}}
				must.Equal(t, fmt.Sprint(got[i]), fmt.Sprint(want), "%s: answer %d is %+v, want %+v", id, i, got[i], want)
			}
		}
		after := r.inspect()
		if after.now, after.oldest = before.now, before.oldest; before != after {
			t.Errorf("before %+v\nafter %+v", before, after)
		}
		if n, err := r.c.Exists(r.ctx, r.key("limit:"+l.key)).Result(); n != 0 || err != nil {
			t.Errorf("a duplicate wrote the state of a limit: %d, %v", n, err)
		}
	})
}

func TestDuplicatesWithinABatch(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		got := r.enqueue([]limit{per(1, second, 2)},
			entry{id: "a"}, entry{id: "a"}, entry{id: "a", content: "other"},
			entry{id: "b", due: "+1000000"}, entry{id: "b", due: "+1000000"},
			entry{id: "c"}, entry{id: "c"}) // no tokens are left
		var codes []int64
		for _, a := range got {
			codes = append(codes, a.code, a.position)
		}
		must.Equal(t, fmt.Sprint(codes), "[1 0 3 1 4 0 2 0 3 2 5 0 5 0]", "codes and positions %v", codes)
	})
}

// All limits allow or nothing is spent, and a full bucket spends nothing.
func TestARefusalSpendsNothing(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{capacity: 2, scheduled: 1})
		limits := []limit{per(1, 60*second, 5), per(1, 60*second, 3), per(1, 60*second, 4)}
		remaining := func(a answer) (n []int64) {
			for _, l := range a.limits {
				n = append(n, l[1])
			}
			return n
		}
		for i, try := range []struct {
			entry
			code int64
			left string
		}{
			{entry{id: "a", cost: 2}, 1, "[3 1 2]"},
			{entry{id: "b", cost: 2}, 5, "[3 1 2]"}, // the second limit refuses
			{entry{id: "b", cost: 4}, 6, "[3 1 2]"}, // it can never hold that
			{entry{id: "b"}, 1, "[2 0 1]"},
			{entry{id: "c"}, 5, "[2 0 1]"},
		} {
			a := r.enqueue(limits, try.entry)[0]
			if a.code != try.code || fmt.Sprint(remaining(a)) != try.left {
				t.Errorf("try %d: code %d, remaining %v; want %d, %s", i, a.code, remaining(a), try.code, try.left)
			}
			if a.code == 5 && (a.wait < 59*second || a.wait > 60*second) {
				t.Errorf("try %d: wait %d", i, a.wait)
			}
		}
		r.pass(120 * second)
		for range 2 {
			if a := r.enqueue(limits, entry{id: "c"})[0]; a.code != 7 || a.wait < 1 || a.limits[0][0] != 0 {
				t.Errorf("full: %+v", a)
			}
		}
		first := remaining(r.enqueue(limits, entry{id: "s", due: "+9000000"})[0])
		if a := r.enqueue(limits, entry{id: "s2", due: "+9000000"})[0]; a.code != 8 || fmt.Sprint(remaining(a)) != fmt.Sprint(first) {
			t.Errorf("scheduled full: %+v, before %v", a, first)
		}
	})
}

// Jobs that are alike are decided as one where all get in, and one by one else.
func TestAlikeJobs(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{capacity: 6, rateCount: 10, ratePer: second})
		l := per(1, 60*second, 7)
		send := func(ids ...string) *lua.Reader {
			keys, args := r.alike([]limit{l}, len(ids), 3, "")
			for i, id := range ids {
				args = append(args, id, fmt.Sprintf("%011dcn%03d \n", 0, i+1))
			}
			in := r.reader(lua.Enqueue, keys, args...)
			in.Int()
			return in
		}
		before := r.now()
		in := send("a", "b", "c")
		if alike, position := in.Int(), in.Int(); alike != 1 || position != 0 {
			t.Fatalf("alike %d, position %d", alike, position)
		}
		if next, count, every := in.Int(), in.Int(), in.Int(); next < before || count != 10 || every != second {
			t.Errorf("next %d, rate %d/%d", next, count, every)
		}
		if remaining, reset := in.Int(), in.Int(); remaining != 4 || reset != 180*second || in.Left() != 0 {
			t.Errorf("remaining %d, reset %d, %d items left", remaining, reset, in.Left())
		}
		in = send("c", "d", "e", "f", "g") // one is there, and there is room for three
		var codes []int64
		for alike := in.Int(); in.Left() > 0; {
			must.Be(t, alike, 0, "decided as one")
			codes = append(codes, in.Int())
			for range 7 {
				in.Int()
			}
		}
		must.Equal(t, fmt.Sprint(codes), "[3 1 1 1 7]", "codes %v", codes)
		for i, id := range []string{"a", "b", "c", "d", "e", "f"} {
			must.Equal(t, r.job(id).position, int64(i), "%s is number", id)
		}
		must.Equal(t, r.claim(ask{want: 6, horizon: 200_000}).ids(), "a b", "claimed")
	})
}

func TestBoundIsExact(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{capacity: 50, scheduled: 20})
		var admitted, scheduled atomic.Int64
		var all sync.WaitGroup
		for g := range 64 {
			all.Go(func() {
				for i := range 4 {
					e := entry{id: fmt.Sprintf("g%d-%d", g, i)}
					if i%2 == 1 {
						e.due = "+60000000"
					}
					switch r.enqueue(nil, e)[0].code {
					case 1:
						admitted.Add(1)
					case 2:
						scheduled.Add(1)
					}
				}
			})
		}
		all.Wait()
		if b := r.inspect(); admitted.Load() != 50 || scheduled.Load() != 20 || b.unfinished != 50 || b.scheduled != 20 {
			t.Errorf("admitted %d, scheduled %d, bucket %+v", admitted.Load(), scheduled.Load(), b)
		}
	})
}

// All that is unfinished counts: waiting, in flight, retrying. What ends makes room.
func TestWhatCountsAgainstTheBound(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{capacity: 4, rateCount: 10_000})
		full := func(want bool) {
			t.Helper()
			id := fmt.Sprint("x", nextClaim())
			a := r.enqueue(nil, entry{id: id})[0]
			if (a.code == 7) != want {
				t.Errorf("code %d, want it full: %t", a.code, want)
			}
			if a.code == 1 { // out again
				r.cancel(id, "")
			}
		}
		r.put("a", "b", "c", "d")
		full(true)
		jobs := r.claim(ask{want: 3}).jobs
		full(true)
		r.settle(outcome{lease: jobs[0], result: retry, delay: 60 * second})
		full(true)
		r.settle(outcome{lease: jobs[1], result: returned})
		full(true)
		r.settle(outcome{lease: jobs[2], result: done})
		full(false)
		r.put("e")
		full(true)
		r.cancel("a", "")
		full(false)
		r.put("f")
		full(true)
	})
}

func TestDueTimes(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		now := r.now()
		got := r.enqueue(nil, entry{id: "a", due: "+1500000"}, entry{id: "b", due: fmt.Sprint(now + 9*second)},
			entry{id: "past", due: "1"}, entry{id: "now", due: "+0"}, entry{id: "plain"})
		if a := got[0]; a.code != 2 || a.eta < now+1_500_000 || a.eta > r.now()+1_500_000 {
			t.Errorf("a: %+v", a)
		}
		if b := got[1]; b.code != 2 || b.eta != now+9*second {
			t.Errorf("b: %+v", b)
		}
		for i, a := range got[2:] {
			if a.code != 1 || a.position != int64(i) || a.eta < now {
				t.Errorf("job %d: %+v", i, a)
			}
		}
		// Exact to the last digit, although Lua's tostring would not be.
		must.Equal(t, r.job("b").instant, now+9*second, "b is due at")
	})
}

// A wake-up is sent when there was nothing to do before, and only then.
func TestWakeUps(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 10_000, inFlight: 2})
		sub := r.c.Subscribe(r.ctx, "tundish:wake")
		t.Cleanup(func() { _ = sub.Close() })
		must.Get(sub.Receive(r.ctx))(t)
		wakes := func(what string, want int, do func()) {
			t.Helper()
			do()
			r.ok(r.c.Publish(r.ctx, "tundish:wake", "end").Err())
			for n := 0; ; n++ {
				m := must.Get(sub.ReceiveMessage(r.ctx))(r.t)
				if m.Payload == "end" {
					must.Equal(t, n, want, "%s: wake-ups", what)
					return
				}
				must.Equal(t, m.Payload, r.name, "%s: woke", what)
			}
		}
		var jobs []lease
		wakes("other settings", 1, func() { r.configure(settings{rateCount: 9000, inFlight: 2}) })
		wakes("other settings again", 1, func() { r.configure(settings{rateCount: 10_000, inFlight: 2}) })
		wakes("the same settings, as of another process", 0, func() { r.configure(settings{rateCount: 10_000, inFlight: 2}) })
		wakes("an older configuration", 0, func() { r.configure(settings{revision: -1}) })
		wakes("a limit on its own", 0, func() { r.run(lua.Configure, r.keys("other"), 1, 0, "", "", 1, "test", 0, "limits", "[]") })
		wakes("into an empty list", 1, func() { r.put("a", "b") })
		wakes("into a list", 0, func() { r.put("c") })
		wakes("first for later", 1, func() { r.putAt("+9000000", "l1") })
		wakes("later still", 0, func() { r.putAt("+19000000", "l2") })
		wakes("sooner", 1, func() { r.putAt("+5000000", "l3") })
		wakes("a claim", 0, func() { jobs = r.claim(ask{}).jobs })
		wakes("a place is free", 1, func() { r.settle(outcome{lease: jobs[0], result: done}) })
		wakes("one more", 0, func() { r.settle(outcome{lease: jobs[1], result: dead}) })
		wakes("a redrive", 1, func() { r.redrive(jobs[1].id) })
		wakes("nothing to take back", 0, func() { r.sweep(sweep{}) })
		wakes("full", 0, func() { jobs = r.claim(ask{}).jobs })
		wakes("behind it", 1, func() { r.put("d") })
		wakes("a lease that held a place", 1, func() { r.end(jobs[0].id); r.sweep(sweep{}) })
	})
}
