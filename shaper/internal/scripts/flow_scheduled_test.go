package scripts_test

import (
	"fmt"
	"testing"
)

// Codes of enqueue.lua for jobs for which there is no room later.
const (
	scheduledFull            = 8
	flowScheduledFull        = 19
	groupScheduledFull       = 20
	hour               int64 = 3600 * second
)

// puts has a flow put in jobs that are due after so long, until one is refused or there are most of them. It returns how many got in, and
// what the last answer was.
func (r *rig) puts(flow, prefix string, after int64, most int) (in int, last answer) {
	r.t.Helper()
	for ; in < most; in++ {
		if last = r.enqueue(nil, entry{id: fmt.Sprint(prefix, in), due: fmt.Sprintf("+%d", after)}.in(r, flow))[0]; last.code != 2 {
			return in, last
		}
	}
	return in, last
}

// later sets how many scheduled jobs a flow and a group may have.
func (r *rig) laterBounds(ofFlow, ofGroup int64) {
	r.t.Helper()
	r.hset("settings", "flow_scheduled_capacity", ofFlow, "group_scheduled_capacity", ofGroup)
}

// Jobs that come later have a bound of their flow and of their group, before that of the bucket: one flow leaves the places of the others.
// Where no bound is set it is the capacity.
func TestScheduledJobsOfAFlowAreBounded(t *testing.T) {
	t.Parallel()
	const scheduled, year = 100, 8784 * hour
	for _, level := range []string{"flows", "groups"} {
		t.Run(level, func(t *testing.T) {
			onBothInCI(t, func(t *testing.T, r *rig) {
				one, sister, other := "one", "", "other"
				if level == "groups" {
					r.configureGroups(settings{scheduled: scheduled}, flowSettings{capacity: 10}, flowSettings{capacity: 15})
					one, sister, other = path("a", "one"), path("a", "sister"), path("b", "other")
				} else {
					r.configureFlows(settings{scheduled: scheduled}, flowSettings{capacity: 10})
				}
				in, last := r.puts(one, "one", year, 2*scheduled)
				t.Logf("one flow has %d of %d scheduled jobs, and then %+v; the other one gets %+v", in, scheduled, last,
					r.enqueue(nil, entry{id: "x", due: fmt.Sprint("+", hour)}.in(r, other))[0])
				if in != 10 || last.code != flowScheduledFull || last.position != 10 || last.eta != 10 || last.wait != year {
					t.Errorf("%d of one flow got in, then %+v", in, last)
				}
				if a := r.enqueue(nil, entry{id: "now"}.in(r, one))[0]; a.code != 1 {
					t.Errorf("a job at once: %+v", a)
				}
				if sister != "" {
					if in, last := r.puts(sister, "sister", 2*hour, scheduled); in != 5 || last.code != groupScheduledFull || last.position != 15 || last.eta != 15 {
						t.Errorf("%d of the other flow of the group got in, then %+v", in, last)
					}
				}
				// Bounds of their own, also below the capacity and above it; a flow of its own capacity has that.
				r.laterBounds(12, 20)
				if in, last := r.puts(one, "more", year, scheduled); in != 2 || last.code != flowScheduledFull || last.eta != 12 {
					t.Errorf("with a bound of 12 %d got in, then %+v", in, last)
				}
				r.laterBounds(3, 0)
				if in, last := r.puts(other, "other", year, scheduled); in != 2 || last.code != flowScheduledFull || last.eta != 3 || last.wait != hour {
					t.Errorf("with a bound of 3 %d got in, then %+v", in, last)
				}
				r.laterBounds(0, 100)
				r.setFlow(other, flowSettings{capacity: 7})
				if in, last := r.puts(other, "own", year, scheduled); in != 4 || last.eta != 7 {
					t.Errorf("with a capacity of its own %d got in, then %+v", in, last)
				}
				// A scheduled job that is in flight has its place until it is done: the next one is about to be free.
				r.pass(hour)
				var job lease
				for _, l := range r.drain(ask{}).jobs {
					if l.id == "x" {
						job = l
					}
				}
				if _, last := r.puts(other, "again", year, 1); last.code != flowScheduledFull || last.wait > second {
					t.Errorf("while one is in flight: %+v", last)
				}
				r.settle(outcome{lease: job, result: done})
				if in, last := r.puts(other, "again", year, 2); in != 1 || last.wait != year-hour {
					t.Errorf("once it is done %d got in, then %+v", in, last)
				}
			})
		})
	}
}

// A bucket that is full of scheduled jobs says when the first of them comes due, whichever flow it is of.
func TestWhenScheduledJobsMakeRoom(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"plain", "flows", "groups"} {
		t.Run(level, func(t *testing.T) {
			onBothInCI(t, func(t *testing.T, r *rig) {
				one, other := "one", "other"
				switch level {
				case "flows":
					r.configureFlows(settings{scheduled: 10}, flowSettings{})
				case "groups":
					r.configureGroups(settings{scheduled: 10}, flowSettings{}, flowSettings{})
					one, other = path("a", "one"), path("b", "other")
				default:
					r.configure(settings{scheduled: 10})
					one, other = "", ""
				}
				if in, last := r.puts(one, "one", 8784*hour, 9); in != 9 {
					t.Fatalf("%d got in, then %+v", in, last)
				}
				wants := func(what string, want int64) {
					t.Helper()
					if a := r.enqueue(nil, entry{id: "x", due: "+1"}.in(r, other))[0]; a.code != scheduledFull || a.wait != want {
						t.Errorf("%s: %+v, want a wait of %d", what, a, want)
					}
				}
				r.puts(one, "soon", hour, 1)
				wants("one flow has them all", hour)
				// Jobs without a delay wait in the meantime.
				if a := r.enqueue(nil, entry{id: "now"}.in(r, other))[0]; a.code != 1 {
					t.Fatalf("%+v", a)
				}
				wants("others leave", hour)
				r.pass(hour)
				wants("the first one is due", 1000)
			})
		})
	}
}

// Jobs that one script puts in are counted like those that were there: what it refuses is told when the first of them comes due.
func TestWhenScheduledJobsOfOneScriptMakeRoom(t *testing.T) {
	t.Parallel()
	for _, of := range []string{"bucket", "bucket of flows", "flow", "group"} {
		t.Run(of, func(t *testing.T) {
			onBothInCI(t, func(t *testing.T, r *rig) {
				flow, code := "", scheduledFull
				switch of {
				case "bucket":
					r.configure(settings{scheduled: 3})
				case "bucket of flows":
					r.configureFlows(settings{scheduled: 3}, flowSettings{})
					flow = "one"
				case "flow":
					r.configureFlows(settings{scheduled: 100}, flowSettings{capacity: 3})
					flow, code = "one", flowScheduledFull
				case "group":
					r.configureGroups(settings{scheduled: 100}, flowSettings{}, flowSettings{capacity: 3})
					flow, code = path("a", "one"), groupScheduledFull
				}
				var batch []entry
				for i, hours := range []int64{9, 5, 7, 8} {
					batch = append(batch, entry{id: fmt.Sprint(i), due: fmt.Sprintf("+%d", hours*hour)}.in(r, flow))
				}
				if last := r.enqueue(nil, batch...)[3]; last.code != int64(code) || last.wait != 5*hour {
					t.Errorf("the last of the batch: %+v, want a wait of %d", last, 5*hour)
				}
				if a := r.enqueue(nil, entry{id: "x", due: "+1"}.in(r, flow))[0]; a.code != int64(code) || a.wait != 5*hour {
					t.Errorf("the next one: %+v, want a wait of %d", a, 5*hour)
				}
			})
		})
	}
}
