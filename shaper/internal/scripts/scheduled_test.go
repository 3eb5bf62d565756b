package scripts_test

import (
	"fmt"
	"testing"
)

// scheduledEverywhere places jobs that came with a delay, and others, in every state.
func (r *rig) scheduledEverywhere(flows ...string) {
	r.t.Helper()
	for i, flow := range flows {
		for n, p := range []placed{
			{state: isScheduled, in: 60 * second, scheduled: true}, {state: isScheduled, in: 90 * second, scheduled: true},
			{state: isRetrying, in: 60 * second, scheduled: true}, {state: isRetrying, in: 60 * second},
			{state: isInFlight, in: 60 * second, scheduled: true}, {state: isInFlight, in: 60 * second},
			{state: isDead, scheduled: true}, {state: isDead}, {},
		} {
			p.id, p.flow = fmt.Sprintf("j%d-%d", i, n), flow
			r.place(p)
		}
	}
}

// The count of jobs that came with a delay is mended where somebody deleted or changed it.
func TestSweepMendsScheduled(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(r *rig){
		"nothing":         func(*rig) {},
		"field deleted":   func(r *rig) { r.hdel("count", "scheduled") },
		"key deleted":     func(r *rig) { r.del("count") },
		"below 0":         func(r *rig) { r.hset("count", "scheduled", -7) },
		"more than exist": func(r *rig) { r.hset("count", "scheduled", 700) },
	} {
		for _, flows := range [][]string{{""}, {"f", "g", "h"}} {
			t.Run(fmt.Sprint(name, len(flows)), func(t *testing.T) {
				onBothInCI(t, func(t *testing.T, r *rig) {
					if r.configure(settings{}); len(flows) > 1 {
						r.configureFlows(settings{}, flowSettings{})
					}
					r.scheduledEverywhere(flows...)
					harm(r)
					look := sweep{cursor: "0", flowCursor: "0"}
					repaired := r.sweep(look).repaired
					if n := int64(len(flows)); r.inspect().scheduled != 4*n || r.inspect().unfinished != 3*n || (repaired != 0) != (name != "nothing") {
						t.Errorf("repaired %d: %+v", repaired, r.inspect())
					}
					if repaired = r.sweep(look).repaired; repaired != 0 {
						t.Errorf("repaired %d again", repaired)
					}
				})
			})
		}
	}
}

// Where there are too many jobs to read, the count comes as near as the places tell, and is true once
// few jobs have been claimed.
func TestSweepMendsManyScheduled(t *testing.T) {
	t.Parallel()
	r := realRig(t) // a miniredis gives all of a hash at once
	r.configure(settings{})
	const later, flying = 900, 600 // a hash of more than 512 is looked at in pieces
	for i := range later {
		r.place(placed{id: fmt.Sprint("l", i), state: isScheduled, in: 60 * second, scheduled: true})
	}
	var jobs []placed
	for i := range flying {
		jobs = append(jobs, placed{id: fmt.Sprint("f", i), state: isInFlight, in: 60 * second, scheduled: i%2 == 0})
		r.place(jobs[i])
	}
	r.hdel("count", "scheduled")
	look := sweep{cursor: "0"}
	if r.sweep(look); r.inspect().scheduled != later-flying {
		t.Errorf("scheduled %d", r.inspect().scheduled)
	}
	for _, job := range jobs[:flying-10] {
		r.settle(outcome{lease: job.lease(), result: done})
	}
	if r.sweep(look); r.inspect().scheduled != later+5 || r.inspect().unfinished != 5 {
		t.Errorf("bucket %+v", r.inspect())
	}
}

// Without a sweeper the count never goes below 0, and takes nothing from the capacity.
func TestScheduledIsNeverBelowZero(t *testing.T) {
	t.Parallel()
	const capacity = 3
	for name, end := range map[string]func(r *rig){
		"settled": func(r *rig) {
			for _, job := range r.claim(ask{}).jobs {
				r.settle(outcome{lease: job, result: done})
			}
		},
		"cancelled": func(r *rig) { r.cancel("a", ""); r.cancel("b", "") },
		"purged":    func(r *rig) { r.purgeAll(purge{id: "p"}) },
		"expired":   func(r *rig) { r.pass(20 * second); r.claim(ask{}) },
		"poisoned": func(r *rig) {
			for range lastChance + 2 {
				r.claim(ask{})
				r.end("a", "b")
				r.sweep(sweep{})
				r.pass(second)
			}
		},
		"below 0 before": func(r *rig) {
			r.cancel("a", "")
			r.cancel("b", "")
			r.hset("count", "scheduled", -2)
		},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, r *rig) {
				r.configure(settings{capacity: capacity, rateCount: 10_000})
				r.enqueue(nil, entry{id: "a", due: "+1", expires: 10 * second}, entry{id: "b", due: "+1", expires: 10 * second})
				r.pass(2)
				r.hdel("count", "scheduled")
				end(r)
				if kept := r.field("count", "scheduled"); kept != "0" && name != "below 0 before" {
					t.Errorf("the count is %q", kept)
				}
				if b := r.inspect(); b.unfinished != 0 || b.scheduled != 0 {
					t.Errorf("bucket %+v", b)
				}
				for i, a := range r.enqueue(nil, entry{id: "c"}, entry{id: "d"}, entry{id: "e"}, entry{id: "f"}) {
					if want := []int64{1, 1, 1, 7}[i]; a.code != want {
						t.Errorf("job %d: code %d, want %d", i, a.code, want)
					}
				}
			})
		})
	}
}
