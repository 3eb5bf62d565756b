package scripts_test

import (
	"fmt"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

func TestCancel(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		must.Equal(t, r.cancel("a", ""), -1, "cancelled in a bucket that is not configured")
		r.configure(settings{rateCount: 10_000})
		r.put("dead", "retrying", "done", "flying")
		for i, job := range r.claim(ask{}).jobs {
			if i < 3 {
				r.settle(outcome{lease: job, result: []int{dead, retry, done}[i], delay: 60 * second})
			}
		}
		r.put("queued")
		r.putAt("+60000000", "scheduled")
		for _, c := range []struct {
			id, state string
			want      int64
		}{
			{"nobody", "", 0}, {"nobody", "5", 0},
			{"flying", "", isInFlight}, {"flying", "5", isInFlight},
			{"done", "", isDone}, {"done", "5", isDone},
			{"dead", "", isDead}, {"dead", "5", isDropped}, {"dead", "5", isDropped}, {"dead", "", isDropped},
			{"queued", "5", isQueued}, {"scheduled", "5", isScheduled}, {"retrying", "5", isRetrying},
			{"queued", "", isCancelled}, {"scheduled", "", isCancelled}, {"retrying", "", isCancelled},
			{"queued", "", isCancelled}, {"scheduled", "", isCancelled}, {"retrying", "5", isCancelled},
		} {
			must.Equal(t, r.cancel(c.id, c.state), c.want, "cancel %s %q", c.id, c.state)
		}
		if b := r.inspect(); b.unfinished != 1 || b.scheduled != 0 || b.later != 0 || b.dead != 0 || b.inFlight != 1 {
			t.Errorf("bucket %+v", b)
		}
	})
}

func TestRedrive(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{capacity: 5, rateCount: 10_000})
		r.put(numbered(5)...)
		for _, job := range r.claim(ask{}).jobs {
			r.settle(outcome{lease: job, result: dead, last: `{"status":410}`})
		}
		r.put("w1", "w2")
		if got := r.redrive("j3", "nobody", "j1", "w1", "j1", "j0", "j2"); fmt.Sprint(got) != "[1 0 1 0 3 1 2]" {
			t.Errorf("redrive %v", got)
		}
		if b := r.inspect(); b.unfinished != 5 || b.dead != 2 || b.waiting != 5 {
			t.Errorf("bucket %+v", b)
		}
		for i, id := range []string{"w1", "w2", "j3", "j1", "j0"} {
			must.Equal(t, r.job(id).position, int64(i), "%s is number", id)
		}
		c := r.claim(ask{})
		if c.ids() != "w1 w2 j3 j1 j0" || c.jobs[2].attempts != 0 || c.jobs[2].epoch != 2 {
			t.Errorf("claimed %+v", c.jobs)
		}
		must.Equal(t, r.settle(outcome{lease: lease{id: "j3", epoch: 1, claim: c.jobs[2].claim}, result: done})[0], 0, "the lease of before the redrive settled it")
		if got := r.redrive("j2", "j4", "j3"); fmt.Sprint(got) != "[2 2 0]" {
			t.Errorf("redrive into a full bucket: %v", got)
		}
	})
}

func TestConfigure(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		for i, c := range []struct {
			schema, revision, capacity int64
			want                       string
			inForce                    int64
		}{
			{1, 5, 100, "[0 1 5]", 100},
			{1, 5, 100, "[0 1 5]", 100}, // sent twice
			{1, 4, 999, "[1 1 5]", 100}, // older
			{1, 6, 200, "[0 1 6]", 200},
			{2, 6, 300, "[0 2 6]", 300},
			{1, 7, 999, "[2 2 6]", 300}, // the program is older than the data
		} {
			got := configured(r, c.schema, c.revision, "capacity", c.capacity)
			must.Equal(t, fmt.Sprint(got[:3]), c.want, "%d: %v", i, got)
			if capacity, err := r.c.HGet(r.ctx, r.key("settings"), "capacity").Int64(); err != nil || capacity != c.inForce {
				t.Errorf("%d: capacity %d, %v; want %d", i, capacity, err, c.inForce)
			}
		}
	})
}

func TestInspectBucket(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		b := r.inspect()
		b.now = 0
		must.Equal(t, b, (bucket{}), "nothing there")
		r.configure(settings{rateCount: 7, ratePer: 60 * second, burst: 2, capacity: 11, scheduled: 12, inFlight: 13, revision: 3})
		before := r.now()
		r.put("a", "b")
		r.putAt("+60000000", "l")
		r.pass(1)
		b = r.inspect()
		if b.oldest < before || b.oldest > b.now || b.lastSlot != 0 {
			t.Errorf("oldest %d, last slot %d", b.oldest, b.lastSlot)
		}
		if last := b.empty - b.now; last <= 0 || last > 2*60*second/7 {
			t.Errorf("the last one leaves in %d µs", last)
		}
		b.now, b.oldest, b.empty = 0, 0, 0
		want := bucket{configured: 1, revision: 3, rateCount: 7, ratePer: 60 * second, burst: 2, capacity: 11,
			scheduledCapacity: 12, maxInFlight: 13, unfinished: 2, waiting: 2, later: 1, scheduled: 1}
		must.Equal(t, b, want, "got")
		// A tombstone at the head has no age, and is no job that waits.
		r.cancelDeep("a")
		if b := r.inspect(); b.oldest != 0 || b.waiting != 1 || b.unfinished != 1 || b.remembered != 1 {
			t.Errorf("bucket %+v", b)
		}
	})
}

func TestInspectJob(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 10, ratePer: second})
		slot := r.now() + 50_000
		r.hset("pace", "slot", slot, "frac", 0, "rate", "10/1000000")
		r.put(numbered(4)...)
		for i, id := range numbered(4) {
			if j := r.job(id); j.state != isQueued || j.position != int64(i) || j.instant != slot+int64(i+1)*100_000 || j.meta != "" || j.body == "" {
				t.Errorf("%s: %+v, want eta %d", id, j, slot+int64(i+1)*100_000)
			}
		}
		first := r.claim(ask{want: 1}).jobs[0]
		if j := r.job("j0"); j.state != isInFlight || j.position != -1 || j.instant != first.slot+30*second {
			t.Errorf("in flight: %+v", j)
		}
		if j := r.job("j3"); j.position != 2 || j.instant != first.slot+300_000 {
			t.Errorf("j3: %+v", j)
		}
		must.Equal(t, r.job("nobody"), (job{}), "an unknown job is known")
		r.settle(outcome{lease: first, result: dead})
		if j := r.job("j0"); j.state != isDead || j.instant > r.now() || j.instant < first.slot-second {
			t.Errorf("dead: %+v", j)
		}
	})
}
