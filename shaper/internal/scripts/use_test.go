package scripts_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

const day = 24 * 3600 * second

// use is what is counted of the day of an instant, without the numbers of rows.
func (r *rig) use(at int64) map[string]string {
	r.t.Helper()
	found := must.Get(r.c.HGetAll(r.ctx, r.names().Use(codec.UseDay(time.UnixMicro(at)))).Result())(r.t)
	maps.DeleteFunc(found, func(field, value string) bool {
		_, ok := codec.ReadUsed(field, value)
		return !ok && strings.HasPrefix(field, "#")
	})
	return found
}

// usedBy has jobs claimed, by their ids.
func (r *rig) usedBy(jobs ...entry) map[string]lease {
	r.t.Helper()
	for i, a := range r.enqueue(nil, jobs...) {
		must.Be(r.t, a.code, 1, "enqueue %s: code", jobs[i].id)
	}
	claim := r.claim
	if r.hasFlows {
		claim = r.drain
	}
	leases := map[string]lease{}
	for range jobs {
		for _, job := range claim(ask{}).jobs {
			leases[job.id] = job
		}
		r.pass(second)
	}
	if len(leases) != len(jobs) {
		r.t.Fatalf("claimed %v of %d jobs", leases, len(jobs))
	}
	return leases
}

// kindsOfUse are buckets of each kind, with two flows of each.
var kindsOfUse = map[string]struct {
	configure     func(t *testing.T, r *rig) *rig
	one, other    string // flows
	first, second string // what their fields end with
}{
	"plain": {func(_ *testing.T, r *rig) *rig { r.configure(settings{rateCount: 1000}); return r }, "", "", "", ""},
	"budgets": {func(_ *testing.T, r *rig) *rig {
		r.configure(settings{rateCount: 1000})
		r.setBudgets("", fmt.Sprintf("tokens 1000 %d;", 10*second), 100)
		return r
	}, "", "", "", ""},
	"flows": {func(_ *testing.T, r *rig) *rig {
		r.configureFlows(settings{rateCount: 1000}, flowSettings{})
		return r
	}, "a b", "*", "fa b", "f*"},
	"groups": {func(_ *testing.T, r *rig) *rig {
		r.configureGroups(settings{rateCount: 1000}, flowSettings{}, flowSettings{})
		r.setBudgets("group_", fmt.Sprintf("tokens 1000 %d;", 10*second), 100)
		return r
	}, path("g", "a"), path("g", "b"), "g1:ga", "g1:gb"},
	"pool": {func(t *testing.T, r *rig) *rig {
		r = r.pooled(t, "vendor", "p", 1, settings{rateCount: 1000})
		r.configurePool(poolSettings{rateCount: 1000})
		return r
	}, "", "", "", ""},
}

// What a job used of a model counts once, however often its outcome is sent. An outcome of another claim counts nothing.
func TestUseCountsOnce(t *testing.T) {
	t.Parallel()
	for kind, of := range kindsOfUse {
		t.Run(kind, func(t *testing.T) {
			onBoth(t, func(t *testing.T, r *rig) {
				r = of.configure(t, r)
				jobs := r.usedBy(entry{id: "1", caller: anna}.in(r, of.one), entry{id: "2", caller: anna}.in(r, of.one), entry{id: "3"}.in(r, of.one),
					entry{id: "4", caller: anna}.in(r, of.other), entry{id: "5", caller: anna}.in(r, of.one), entry{id: "6", caller: anna}.in(r, of.one))
				at := r.now()
				used := func(id, use string) outcome { return outcome{lease: jobs[id], result: done, claimedAt: at, use: use} }
				r.settle(outcome{lease: jobs["6"], result: done, claimedAt: at})
				if keys := r.c.Keys(r.ctx, "*:use:*").Val(); len(keys) > 0 {
					t.Errorf("a job that used no model leaves %v", keys)
				}
				all := []outcome{used("1", "gpt-4o 100 20"), used("2", "gpt-4o 3 4 1007"), used("3", "gpt-4o 5 6"), used("4", "o%2F3 7 8 0"), used("1", "gpt-4o 100 20")}
				stale := used("5", "gpt-4o 1000 1000")
				stale.claim = "other"
				for range 2 {
					r.settle(append(all, stale)...)
				}
				want := map[string]string{anna + " gpt-4o " + of.first: "2 103 24", " gpt-4o " + of.first: "1 5 6", anna + " o%2F3 " + of.second: "1 7 8",
					"+" + anna + " gpt-4o " + of.first: "1000", "+" + anna + " o%2F3 " + of.second: "-15"}
				must.Equal(t, cmp.Diff(want, r.use(at)), "", "(-want +counted)")
				if ttl := r.ttl(r.names().Use(codec.UseDay(time.UnixMicro(at)))); ttl <= 31*24*time.Hour || ttl > 32*24*time.Hour {
					t.Errorf("it is kept for %s", ttl)
				}
				stale.claim = jobs["5"].claim
				r.settle(stale)
				must.Equal(t, r.use(at)[anna+" gpt-4o "+of.first], "3 1103 1024", "the last job makes it")
			})
		})
	}
}

// A lease that ran out is another one's: its outcome, which comes late, counts nothing.
func TestUseOfALostLease(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 1000})
		first := r.usedBy(entry{id: "1"})["1"]
		r.end(first.id)
		if s := r.sweep(sweep{}); s.takenBack != 1 {
			t.Fatalf("swept %+v", s)
		}
		again := r.claim(ask{}).jobs[0]
		at := r.now()
		r.settle(outcome{lease: first, result: done, claimedAt: at, use: "m 1 1"})
		r.settle(outcome{lease: again, result: done, claimedAt: at, use: "m 20 20"})
		r.settle(outcome{lease: first, result: done, claimedAt: at, use: "m 1 1"})
		must.Equal(t, cmp.Diff(map[string]string{" m ": "1 20 20"}, r.use(at)), "", "(-want +counted)")
	})
}

// A failed attempt may have used a model too, and so may each of several attempts.
func TestUseOfAttempts(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 1000})
		at := r.now()
		r.settle(outcome{lease: r.usedBy(entry{id: "1"})["1"], result: retry, claimedAt: at, use: "m 1 2"})
		r.pass(second)
		r.settle(outcome{lease: r.claim(ask{}).jobs[0], result: dead, claimedAt: at, use: "m 10 20"})
		must.Equal(t, cmp.Diff(map[string]string{" m ": "2 11 22"}, r.use(at)), "", "(-want +counted)")
	})
}

// Each call counts on the day of its claim, also where one script has outcomes of several days.
func TestUseOfDays(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"plain", "groups", "pool"} {
		of := kindsOfUse[kind]
		t.Run(kind, func(t *testing.T) {
			onBothInCI(t, func(t *testing.T, r *rig) {
				r = of.configure(t, r)
				jobs := r.usedBy(entry{id: "1"}.in(r, of.one), entry{id: "2"}.in(r, of.one), entry{id: "3"}.in(r, of.one), entry{id: "4"}.in(r, of.one))
				at := r.now()
				midnight := at - at%day
				r.settle(outcome{lease: jobs["1"], result: done, claimedAt: midnight, use: "m 1 1"},
					outcome{lease: jobs["2"], result: done, claimedAt: midnight - 1, use: "m 20 20"},
					outcome{lease: jobs["3"], result: done, claimedAt: midnight - day - 1, use: "m 300 300"},
					outcome{lease: jobs["4"], result: done, claimedAt: midnight, use: "m 4 4"})
				for of, want := range map[int64]string{at: "2 5 5", at - day: "1 20 20", at - 2*day: "1 300 300", at + day: ""} {
					if got := strings.Join(slices.Collect(maps.Values(r.use(of))), " "); got != want {
						t.Errorf("day %d: %q, want %q", (of-at)/day, got, want)
					}
				}
			})
		})
	}
}

// A day has 1,000 fields at most. What has its own goes on being counted there, all others are counted by their model, and then without
// it. No call is missing.
func TestUseIsBounded(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		const n = 1200
		r.configure(settings{rateCount: 1_000_000, capacity: n + 4, inFlight: n + 4})
		r.put(numbered(n)...)
		jobs, at := r.claim(ask{want: n}).jobs, r.now()
		must.Be(t, len(jobs), n, "claimed")
		for from := 0; from < n; from += 200 {
			var all []outcome
			for i, job := range jobs[from : from+200] {
				all = append(all, outcome{lease: job, result: done, claimedAt: at, use: fmt.Sprintf("m%d 1 2", from+i)})
			}
			r.settle(all...)
		}
		later := r.usedBy(entry{id: "known"}, entry{id: "caller", caller: anna}, entry{id: "again", caller: bert}, entry{id: "model", caller: bert})
		for id, model := range map[string]string{"known": "m5", "caller": "m905", "again": "m905", "model": "new"} {
			r.settle(outcome{lease: later[id], result: done, claimedAt: at, use: model + " 10 20"})
		}
		found, calls := r.use(at), int64(0)
		for field, want := range map[string]string{" m5 ": "2 11 22", " m899 ": "1 1 2", "* m900 *": "1 1 2", "* m905 *": "3 21 42", "* m998 *": "1 1 2",
			"* * *": "202 211 422", " m900 ": "", "* m999 *": ""} {
			must.Equal(t, found[field], want, "%q is", field)
		}
		for field, value := range found {
			used, ok := codec.ReadUsed(field, value)
			if !ok {
				t.Errorf("%q: %q cannot be read", field, value)
			}
			calls += used.Calls
		}
		if len(found) != 1000 || calls != n+4 {
			t.Errorf("%d fields with %d calls, want 1000 with %d", len(found), calls, n+4)
		}
	})
}

// One caller makes no more rows than it leaves free, and other callers still have rows of their own. What is beyond a share counts by its model, and
// nothing is missing. A caller that makes names of models up leaves others some of the rows by model, too.
func TestUseIsShared(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		const n = 800
		r.configure(settings{rateCount: 1_000_000, capacity: 2 * n, inFlight: 2 * n})
		all, at := []entry{}, r.now()
		for i := range n {
			all = append(all, entry{id: fmt.Sprint("a", i), caller: anna})
		}
		for i := range n {
			all = append(all, entry{id: fmt.Sprint("b", i), caller: bert})
		}
		for from := 0; from < len(all); from += 200 {
			r.enqueue(nil, all[from:from+200]...)
		}
		jobs := r.claim(ask{want: 2 * n}).jobs
		must.Be(t, len(jobs), 2*n, "claimed")
		for from := 0; from < len(jobs); from += 200 {
			var outcomes []outcome
			for i, job := range jobs[from : from+200] {
				outcomes = append(outcomes, outcome{lease: job, result: done, claimedAt: at, use: fmt.Sprintf("m%d 1 2", from+i)})
			}
			r.settle(outcomes...)
		}
		rows, calls := map[string]int{}, int64(0)
		for field, value := range r.use(at) {
			used, ok := codec.ReadUsed(field, value)
			if !ok {
				t.Errorf("%q: %q cannot be read", field, value)
			}
			caller, _, _ := strings.Cut(field, " ")
			rows[caller]++
			calls += used.Calls
		}
		if want := map[string]int{anna: 450, bert: 225, "*": 76}; calls != 2*n || !maps.Equal(rows, want) {
			t.Errorf("%d calls in rows %v, want %v", calls, rows, want)
		}
		third := r.usedBy(entry{id: "third", caller: "thirdAB"})["third"]
		r.settle(outcome{lease: third, result: done, claimedAt: at, use: "m 10 20"})
		must.Equal(t, r.use(at)["thirdAB m "], "1 10 20", "the row of a third caller is")
	})
}
