package scripts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// expiring are the kinds of buckets, with a flow of each.
func expiring(t *testing.T, s settings, of flowSettings, test func(t *testing.T, r *rig, flow string)) {
	t.Helper()
	onBoth(t, func(t *testing.T, r *rig) {
		t.Run("plain", func(t *testing.T) {
			r := r.fresh(t, "plain")
			r.configure(s)
			test(t, r, "")
		})
		t.Run("flows", func(t *testing.T) {
			r := r.fresh(t, "flows")
			r.configureFlows(s, of)
			test(t, r, "a b")
		})
		t.Run("groups", func(t *testing.T) {
			r := r.fresh(t, "groups")
			r.configureGroups(s, of, of)
			test(t, r, path("g", "a"))
		})
	})
}

// inFlow is a job of a flow, of one that has a name.
func (r *rig) inFlow(e entry, flow string) entry {
	if r.withFlows() == 0 {
		return e
	}
	return e.in(r, flow)
}

// claimNow claims what may go, in any kind of bucket.
func (r *rig) claimNow(want int64) claimed {
	r.t.Helper()
	if r.withFlows() == 0 {
		return r.claim(ask{want: want})
	}
	return r.drain(ask{want: want})
}

// A job that has expired makes room while nothing leaves, from every place in which it can wait. Each is told once.
func TestExpiredJobsMakeRoom(t *testing.T) {
	expiring(t, settings{capacity: 6, scheduled: 1}, flowSettings{capacity: 6}, func(t *testing.T, r *rig, flow string) {
		r.notes(allEvents)
		put := func(jobs ...entry) (codes []int64) {
			t.Helper()
			for i := range jobs {
				jobs[i] = r.inFlow(jobs[i], flow)
			}
			for _, a := range r.enqueue(nil, jobs...) {
				codes = append(codes, a.code)
			}
			return codes
		}
		put(entry{id: "retries", expires: 2 * second})
		r.pass(second)
		r.settle(outcome{lease: r.claimNow(1).jobs[0], result: retry, delay: 3600 * second, last: `{"status":500}`})
		r.pause()
		if codes := put(entry{id: "stays"}, entry{id: "k", priority: 1, expires: second, callback: true}, entry{id: "h", priority: 2, expires: second},
			entry{id: "n", expires: second}, entry{id: "l", priority: 4, expires: second},
			entry{id: "later", due: "+3600000000", expires: second}); !slices.Equal(codes, []int64{1, 1, 1, 1, 1, 2}) {
			t.Fatalf("codes %v", codes)
		}
		full := func() []int64 { return put(entry{id: "new"}, entry{id: "new later", due: "+5000000"}) }
		if codes := full(); codes[0] != 7 && codes[0] != flowFull && codes[0] != groupFull || codes[1] == 2 {
			t.Errorf("into a full bucket: %v", codes)
		}
		r.pass(second - 1)
		if dead := r.expire(); len(dead) != 0 {
			t.Errorf("dead before their time: %q", dead)
		}
		r.pass(1)
		for round := range 2 {
			dead := r.expireOnly("k", "h", "n", "l", "later", "retries", "retries", "stays", "unknown").dead
			if slices.Sort(dead); strings.Join(dead, " ") != []string{"h k l later n retries", ""}[round] {
				t.Errorf("round %d: dead are %q", round, dead)
			}
		}
		for _, id := range []string{"k", "h", "n", "l", "later", "retries"} {
			if stored := r.field("meta", id); stored[0] != '5' || !strings.HasSuffix(stored, " "+expiredLast) {
				t.Errorf("of %s is stored %q", id, stored)
			}
		}
		r.wantBytesOfDead()
		if b := r.inspect(); b.unfinished != 1 || b.waiting != 1 || b.scheduled != 0 || b.later != 0 || b.dead != 6 {
			t.Errorf("the bucket has %+v", b)
		}
		if got := strings.Fields(r.callbacks()); len(got) == 0 || got[0] != "k" {
			t.Errorf("callbacks %q", got)
		}
		if events := describe(r.moveEvents()); !strings.Contains(events, "job.dead") || !strings.Contains(events, "=6") {
			t.Errorf("events %q", events)
		}
		if left := r.expiries(); len(left) != 0 {
			t.Errorf("%v is kept of jobs that ended", left)
		}
		if codes := full(); !slices.Equal(codes, []int64{1, 2}) {
			t.Errorf("into the room that they made: %v", codes)
		}
		r.resume()
		r.pass(second)
		must.Equal(t, r.claimNow(10).ids(), "stays new", "then leave")
	})
}

// A job in flight is spared, and so is what a purge has not removed yet; each is looked at again.
func TestExpireSparesJobsInFlight(t *testing.T) {
	expiring(t, settings{}, flowSettings{}, func(t *testing.T, r *rig, flow string) {
		r.enqueue(nil, r.inFlow(entry{id: "a", expires: 2 * second}, flow), r.inFlow(entry{id: "b", expires: 2 * second}, flow))
		r.pass(second)
		jobs := r.claimNow(2).jobs
		must.Be(t, len(jobs), 2, "jobs were claimed")
		r.pass(5 * second)
		for range 2 {
			if dead := r.expire(); len(dead) != 0 {
				t.Errorf("dead in flight: %q", dead)
			}
		}
		if at := r.expiries()["a"]; at != r.now()+expireAgain {
			t.Errorf("it is looked at %d µs from now", at-r.now())
		}
		r.settle(outcome{lease: jobs[0], result: retry, delay: 3600 * second, last: `{}`}, outcome{lease: jobs[1], result: done})
		if _, there := r.expiries()["b"]; there {
			t.Error("what is done is kept")
		}
		r.pass(expireAgain)
		if dead := r.expire(); !slices.Equal(dead, []string{"a"}) {
			t.Errorf("after it came back: %q", dead)
		}
	})
}

// A purge removes what it has taken, whether it expires meanwhile or not.
func TestExpireSparesWhatIsPurged(t *testing.T) {
	expiring(t, settings{}, flowSettings{}, func(t *testing.T, r *rig, flow string) {
		for _, id := range []string{"a", "b"} {
			r.enqueue(nil, r.inFlow(entry{id: id, expires: second}, flow))
		}
		r.purge(purge{id: "p", flow: flow, atMost: 1})
		r.pass(2 * second)
		if dead := r.expire(); len(dead) != 0 {
			t.Errorf("dead in a purge: %q", dead)
		}
		r.purgeAll(purge{id: "p", flow: flow})
		r.wantStates(map[string]int64{"a": isCancelled, "b": isCancelled})
		if left := r.expiries(); len(left) != 0 {
			t.Errorf("%v is kept of purged jobs", left)
		}
	})
}

// What is kept of the times goes with the jobs. A redrive begins the time anew, and jobs that do not expire cost nothing.
func TestExpiriesGoWithTheirJobs(t *testing.T) {
	expiring(t, settings{}, flowSettings{}, func(t *testing.T, r *rig, flow string) {
		wants := func(what string, want map[string]int64) {
			t.Helper()
			if got := r.expiries(); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
		r.enqueue(nil, r.inFlow(entry{id: "plain"}, flow), r.inFlow(entry{id: "called", caller: "abcdef", agrees: "xx"}, flow))
		wants("without", map[string]int64{})
		if r.c.HExists(r.ctx, r.key("settings"), "expires").Val() {
			t.Error("the settings say that jobs expire")
		}
		began := r.now()
		r.enqueue(nil, r.inFlow(entry{id: "a", expires: 100 * second, caller: "abcdef"}, flow), r.inFlow(entry{id: "b", expires: 200 * second, due: "+9000000"}, flow))
		wants("enqueued", map[string]int64{"a": began + 100*second, "b": began + 200*second})
		keys, args := r.alike(nil, 1, 3, flow)
		r.run(lua.Enqueue, keys, append(args, "c", "00000000000cn001~50000000 "+r.inFlow(entry{}, flow).header()+"\n{}")...)
		wants("alike", map[string]int64{"a": began + 100*second, "b": began + 200*second, "c": began + 50*second})
		r.cancel("b", "")
		wants("cancelled", map[string]int64{"a": began + 100*second, "c": began + 50*second})
		r.pass(second)
		for _, job := range r.claimNow(4).jobs {
			result := done
			if job.id == "a" {
				result = dead
			}
			r.settle(outcome{lease: job, result: result, last: `{}`})
		}
		wants("settled", map[string]int64{})
		r.redrive("a")
		wants("redriven", map[string]int64{"a": r.now() + 100*second})
	})
}

// A job whose id was used again for another flow is looked at later, where it is by then.
func TestExpireOfAnotherFlow(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{}, flowSettings{})
		r.putIn("a", 3, second, "x")
		r.pass(2 * second)
		flows := []string{"b"}
		in := lua.NewReader(r.run(lua.Expire, r.keysOf(lua.Expire, flows...), 1, expireAgain, 1<<20, expiredLast, 1, "b", "x", 1))
		if in.Int(); in.Int() != 1 || in.Int() != 0 || in.Left() != 0 {
			t.Error("it was taken for a job of another flow")
		}
		if at := r.expiries()["x"]; at != r.now()+expireAgain {
			t.Errorf("it is looked at %d µs from now", at-r.now())
		}
		r.wantStates(map[string]int64{"x": isQueued})
	})
}

// Bodies may be large: a run reads some.
func TestExpireReadsLargeJobsInParts(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		ids := numbered(10)
		for _, id := range ids {
			r.enqueue(nil, entry{id: id, expires: second})
		}
		r.enlarge(300_000, ids...)
		r.pass(2 * second)
		if out := r.expireOnly(ids...); out.lookedAt != 3 || len(out.dead) != 3 {
			t.Errorf("the first run: %+v", out)
		}
		if dead := r.expire(); len(dead) != 7 {
			t.Errorf("the others: %q", dead)
		}
	})
}

// In a long list ids of expired jobs stay, but no more of them than jobs that wait, and the order of these stays.
func TestExpireInALongList(t *testing.T) {
	expiring(t, settings{capacity: 10_000, inFlight: 10_000}, flowSettings{}, func(t *testing.T, r *rig, flow string) {
		r.pause()
		list := r.key(queueKey + flow)
		length := func() int64 { return r.c.LLen(r.ctx, list).Val() }
		var stay []string
		for round := range 2 {
			var jobs []entry
			for i := range 2100 {
				e := entry{id: fmt.Sprintf("j%d.%d", round, i), expires: second}
				if i%7 == 0 {
					e.expires = 0
					stay = append(stay, e.id)
				}
				jobs = append(jobs, r.inFlow(e, flow))
			}
			for some := range slices.Chunk(jobs, 700) {
				r.enqueue(nil, some...)
			}
			r.pass(2 * second)
			must.Be(t, len(r.expire()), 1800, "jobs are dead")
			if b := r.inspect(); b.unfinished != int64(len(stay)) || b.waiting != int64(len(stay)) {
				t.Errorf("%d jobs are unfinished, %d wait, want %d", b.unfinished, b.waiting, len(stay))
			}
			if most := 2*int64(len(stay)) + 1000; length() > most {
				t.Errorf("the list has %d entries of %d jobs", length(), len(stay))
			}
		}
		r.sift(flow)
		if got := r.c.LRange(r.ctx, list, 0, -1).Val(); !slices.Equal(got, stay) {
			t.Errorf("%d ids are left, want %d in their order", len(got), len(stay))
		}
	})
}

// Where jobs expire in the order in which they wait, nothing of them is left in a long list.
func TestExpireAtTheHeadOfALongList(t *testing.T) {
	t.Parallel()
	onReal(t, func(t *testing.T, r *rig) {
		r.configure(settings{capacity: 10_000})
		r.pause()
		for round := range 6 {
			jobs := make([]entry, 500)
			for i := range jobs {
				jobs[i] = entry{id: fmt.Sprintf("j%04d", 500*round+i), expires: second}
			}
			r.enqueue(nil, jobs...)
		}
		r.pass(2 * second)
		if dead := r.expire(); len(dead) != 3000 || r.exists(queueKey) != 0 || r.c.HExists(r.ctx, r.key("settings"), "leftovers").Val() {
			t.Errorf("%d are dead, %d ids are left", len(dead), r.llen(queueKey))
		}
	})
}
