package scripts_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// fill sets the memory that the server may use to what it uses.
func (r *rig) fill() {
	r.t.Helper()
	info := must.Get(r.c.Info(r.ctx, "memory").Result())(r.t)
	_, rest, _ := strings.Cut(info, "used_memory:")
	text, _, _ := strings.Cut(rest, "\r\n")
	used := must.Get(strconv.Atoi(text))(r.t)
	r.ok(r.c.ConfigSet(r.ctx, "maxmemory", strconv.Itoa(used/2)).Err())
}

// A server that is full takes no new job, and everything else goes on until
// the bucket is empty.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	r := realRig(t)
	r.configure(settings{rateCount: 100_000, dedupeMax: 50})
	r.put(numbered(300)...)
	r.putAt("+1", "later1", "later2")
	r.cancel("later2", "")
	lost := r.claim(ask{want: 20}).jobs
	limits := []limit{per(1, second, 10)}
	r.end(lost[0].id)
	r.fill()

	before := r.dump()
	for _, jobs := range [][]entry{{{id: "new"}}, {{id: "new", due: "+5000000"}}, {{id: "j0"}, {id: "new"}}} {
		keys, args := r.enqueueArgs(limits, jobs)
		if _, err := lua.Enqueue.Run(r.ctx, r.c, nil, keys, args...); !redis.HasErrorPrefix(err, "OOM") {
			t.Errorf("enqueue into a full server: %v", err)
		}
	}
	must.Equal(t, r.dump(), before, "an enqueue that was refused wrote something")
	// A duplicate writes nothing and is answered.
	if a := r.enqueue(nil, entry{id: "j5"}); a[0].code != 3 {
		t.Errorf("duplicate: %+v", a)
	}

	r.extend(9*second, lost[1:]...)
	if s := r.sweep(sweep{cursor: "0"}); s.takenBack != 1 || s.repaired != 0 {
		t.Errorf("swept %+v", s)
	}
	must.Equal(t, r.cancel("j250", ""), isCancelled, "cancel")
	if got := r.configure(settings{rateCount: 100_000, dedupeMax: 50, revision: 2}); got[0] != 0 {
		t.Errorf("configure: %v", got)
	}
	for _, job := range lost[1:] {
		r.settle(outcome{lease: job, result: []int{done, retry, dead, returned}[job.slot%4]})
	}
	rounds := 0
	for ; rounds < 100; rounds++ {
		c := r.claim(ask{want: 50})
		var all []outcome
		for i, job := range c.jobs {
			all = append(all, outcome{lease: job, result: []int{done, done, retry, dead}[(i+rounds)%4]})
		}
		r.settle(all...)
		ids := r.members("dead")
		r.redrive(ids...)
		if len(ids) > 0 && rounds > 10 {
			r.cancel(ids[0], "")
		}
		if b := r.inspect(); b.unfinished == 0 && b.dead == 0 && b.scheduled == 0 {
			break
		}
	}
	r.claim(ask{}) // pops what cancelled jobs left
	if b := r.inspect(); b.unfinished != 0 || b.waiting != 0 || b.later != 0 || b.inFlight != 0 {
		t.Errorf("after %d rounds the bucket is not empty: %+v", rounds, b)
	}
	r.ok(r.c.ConfigSet(r.ctx, "maxmemory", "0").Err())
	r.put("new")
}

// dump is all data of the server as text.
func (r *rig) dump() string {
	r.t.Helper()
	keys, err := r.c.Keys(r.ctx, "*").Result()
	r.ok(err)
	found := make(map[string]string)
	for _, key := range keys {
		if found[key], err = r.c.Dump(r.ctx, key).Result(); err != nil {
			r.ok(err)
		}
	}
	return fmt.Sprint(found)
}

// Large answers: a batch of the largest size goes through all scripts.
func TestLargestBatches(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		const n = 1000
		r.configure(settings{rateCount: 1_000_000, capacity: n, inFlight: n, scheduled: n})
		r.put(numbered(n)...)
		c := r.claim(ask{want: n})
		must.Be(t, len(c.jobs), n, "claimed")
		must.Equal(t, r.claim(ask{claim: c.jobs[0].claim, want: n}).ids(), c.ids(), "the replay differs")
		r.extend(second, c.jobs[:500]...)
		for from := 0; from < n; from += 250 {
			var all []outcome
			for i, job := range c.jobs[from : from+250] {
				all = append(all, outcome{lease: job, result: 1 + i%4, delay: 1})
			}
			for i, settled := range r.settle(all...) {
				must.Be(t, settled, 1, "outcome %d of %d was not settled", i, from)
			}
		}
		r.pass(second)
		must.Equal(t, len(r.claim(ask{want: n}).jobs), n/2, "claimed")
	})
}
