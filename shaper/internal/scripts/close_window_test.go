package scripts_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// closeWindow runs close_window.lua; times are from the epoch on, 0 is none.
func (r *rig) closeWindow(plan string, opened, ends, nextOpened, nextEnds int64) int64 {
	r.t.Helper()
	abs := func(at int64) int64 {
		if at == 0 {
			return 0
		}
		return epoch + at
	}
	names := r.names()
	reply := r.run(lua.CloseWindow, r.keysOf(lua.CloseWindow, ""), plan, names.Levels, names.Member, abs(opened), abs(ends), abs(nextOpened), abs(nextEnds))
	n, _ := reply.(int64)
	return n
}

// windowReports are the details of the events window.closed, which are moved on.
func (r *rig) windowReports() (reports []map[string]string) {
	r.t.Helper()
	events := r.moveEvents()
	for _, e := range events {
		detail := map[string]string{}
		r.ok(json.Unmarshal([]byte(e.detail), &detail))
		if detail["opened"] != "" {
			if e.name != "window.closed "+detail["opened"] || e.count != 1 {
				r.t.Errorf("the event is %+v", e)
			}
			reports = append(reports, detail)
		}
	}
	r.moveEvents(events...)
	return reports
}

// A window is reported once, whichever dispatchers look and how often: with jobs that were sent and died in it, and not by day; with those
// that are left, without delayed ones, and why.
func TestAClosedWindowIsReportedOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, base *rig) {
		for _, hasFlows := range []bool{false, true} {
			r := base.fresh(t, fmt.Sprint("b", hasFlows))
			r.setTime(epoch)
			claim := func(a ask) claimed { return r.claim(a) }
			if s := (settings{rateCount: 10, inFlight: 100}); hasFlows {
				r.configureFlows(s, flowSettings{})
				claim = func(a ask) claimed { return r.drain(a) }
			} else {
				r.configure(s)
			}
			r.notes("job.dead window.closed")
			r.hset("settings", "plan", "p1")
			const opens, ends, again = 100 * second, 110 * second, 200 * second
			r.obeyTimetable(stretch{from: beforeEpoch, kind: "o"}, stretch{from: 10 * second, kind: "c"}, stretch{from: opens, kind: "o", opened: opens},
				stretch{from: ends, kind: "c"}, stretch{from: again, kind: "o", opened: again}, stretch{from: again + 10*second, kind: "x"})
			wants := func(when string, got, want int64) {
				t.Helper()
				must.Equal(t, got, want, "flows %t: %s: answers", hasFlows, when)
			}
			wants("the first look", r.closeWindow("p1", 0, 0, opens, ends), 1)
			wants("the same again", r.closeWindow("p1", 0, 0, opens, ends), 0)
			r.putIn("", 3, 0, numbered(30)...)
			r.enqueue(nil, entry{id: "delayed", due: fmt.Sprint(epoch + 1000*second)})
			r.pass(second)
			for _, job := range claim(ask{}).jobs { // by day
				r.settle(outcome{lease: job, result: done})
			}
			r.setTime(epoch + opens)
			sent, died := 0, 0
			var last []lease
			for r.now() < epoch+ends-second {
				for i, job := range claim(ask{want: 2}).jobs {
					if i == 1 && died == 0 {
						died++
						r.settle(outcome{lease: job, result: dead, last: `{"cause":"permanent"}`})
						continue
					}
					sent++
					r.settle(outcome{lease: job, result: done})
				}
				wants("while it is open", r.closeWindow("p1", opens, ends, again, again+10*second), 0)
				r.pass(second)
			}
			last = claim(ask{want: 1}).jobs
			r.setTime(epoch + ends + second)
			wants("with one in flight", r.closeWindow("p1", opens, ends, again, again+10*second), 0)
			r.settle(outcome{lease: last[0], result: done})
			sent++
			wants("of another plan", r.closeWindow("p0", opens, ends, again, again+10*second), 0)
			wants("then", r.closeWindow("p1", opens, ends, again, again+10*second), 1)
			wants("another dispatcher", r.closeWindow("p1", opens, ends, again, again+10*second), 0)
			reports := r.windowReports()
			left := r.inspect().unfinished
			if len(reports) != 1 || reports[0]["sent"] != fmt.Sprint(sent) || reports[0]["dead"] != "1" || reports[0]["dropped"] != "0" || reports[0]["left"] != fmt.Sprint(left) || left == 0 ||
				reports[0]["delayed"] != "1" || reports[0]["closed"] != fmt.Sprint(epoch+ends) || reports[0]["why"] != "rate" {
				t.Errorf("flows %t: %d sent, %d left: reported %v", hasFlows, sent, left, reports)
			}
			r.setTime(epoch + again + 30*second)
			r.pause()
			wants("no dispatcher, and paused", r.closeWindow("p1", again, again+10*second, 0, 0), 1)
			if reports := r.windowReports(); len(reports) != 1 || reports[0]["sent"] != "0" || reports[0]["why"] != "paused" {
				t.Errorf("flows %t: then %v", hasFlows, reports)
			}
			if n := r.c.HExists(r.ctx, r.key("count"), "window").Val(); n {
				t.Error("without a next window there is a tally")
			}
		}
	})
}

// Jobs in flight delay a report by a minute, and are named then. A window that is reported long after its end had no dispatcher.
func TestWhyJobsAreLeft(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 10})
		r.notes("window.closed")
		r.hset("settings", "plan", "p", "quotas", "3 3600000000;")
		r.obeyTimetable(stretch{from: beforeEpoch, kind: "o", opened: 1}, stretch{from: 10 * second, kind: "c"}, stretch{from: 9000 * second, kind: "x"})
		r.closeWindow("p", 0, 0, second, 10*second)
		r.put(numbered(9)...)
		r.pass(2 * second)
		jobs := r.claim(ask{}).jobs
		for len(jobs) < 3 {
			r.pass(second)
			jobs = append(jobs, r.claim(ask{}).jobs...)
		}
		r.settle(outcome{lease: jobs[0], result: retry, delay: 7200 * second}, outcome{lease: jobs[1], result: done})
		r.setTime(epoch + 69*second)
		must.Equal(t, r.closeWindow("p", second, 10*second, 100*second, 110*second), 0, "it does not wait for the job in flight")
		r.setTime(epoch + 70*second)
		r.closeWindow("p", second, 10*second, 100*second, 110*second)
		if got := r.windowReports(); len(got) != 1 || got[0]["sent"] != "1" || got[0]["left"] != "8" || got[0]["why"] != "quota retries in-flight" {
			t.Errorf("reported %v", got)
		}
		r.setTime(epoch + 231*second)
		r.closeWindow("p", 100*second, 110*second, 0, 0)
		if got := r.windowReports(); len(got) != 1 || got[0]["why"] != "no-dispatcher quota retries in-flight" {
			t.Errorf("long after: %v", got)
		}
	})
}

// Without a hook for it nothing is counted, and a tally that is there goes. A window of an earlier plan closes with the change if it was
// open, and else is forgotten.
func TestWindowsOfAnotherPlan(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		tally := func() string { return r.field("count", "window") }
		r.notes("job.dead")
		r.put("a")
		r.pass(second)
		r.settle(outcome{lease: r.claim(ask{}).jobs[0], result: done})
		must.Equal(t, tally(), "", "counted without a hook")
		r.hset("settings", "plan", "p")
		r.notes("window.closed")
		r.setTime(epoch)
		r.closeWindow("p", 0, 0, 50*second, 60*second)
		r.closeWindow("p", 50*second, 0, 20*second, 30*second)
		if got := r.windowReports(); len(got) != 0 || tally() != fmt.Sprintf("%d %d 0 0 0", epoch+20*second, epoch+30*second) {
			t.Errorf("a window to come: %v, then %q", got, tally())
		}
		r.setTime(epoch + 22*second)
		r.closeWindow("p", 20*second, 25*second, 70*second, 80*second)
		if got := r.windowReports(); len(got) != 0 || tally() != fmt.Sprintf("%d %d 0 0 0", epoch+20*second, epoch+25*second) {
			t.Errorf("another end: %v, then %q", got, tally())
		}
		r.closeWindow("p", 20*second, 0, 70*second, 80*second)
		if got := r.windowReports(); len(got) != 1 || got[0]["closed"] != fmt.Sprint(epoch+22*second) {
			t.Errorf("an open window that goes: %v", got)
		}
		r.notes("job.dead")
		r.closeWindow("p", 70*second, 0, 0, 0)
		if got := r.windowReports(); len(got) != 0 || tally() != "" {
			t.Errorf("without a hook: %v, %q", got, tally())
		}
	})
}

// The end of an open window that goes is the time of the first look, however long jobs in flight delay its report. A window to come of which
// the plan has another end keeps its place.
func TestAWindowThatGoesWaitsForJobsInFlight(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 10})
		r.notes("window.closed")
		r.hset("settings", "plan", "p")
		r.setTime(epoch)
		r.closeWindow("p", 0, 0, second, 900*second)
		r.closeWindow("p", second, 800*second, 900*second, 1000*second)
		tally := func() string { return r.field("count", "window") }
		if want := fmt.Sprintf("%d %d 0 0 0", epoch+second, epoch+800*second); tally() != want {
			t.Errorf("the tally is %q, want %q", tally(), want)
		}
		r.put("a")
		r.pass(2 * second)
		for len(r.claim(ask{}).jobs) == 0 {
			r.pass(second)
		}
		removed := r.now()
		for _, look := range []struct{ after, want int64 }{{0, 1}, {30 * second, 0}, {59 * second, 0}, {60 * second, 1}} {
			r.setTime(removed + look.after)
			must.Equal(t, r.closeWindow("p", second, 0, 0, 0), look.want, "%d s after the change it answers", look.after/second)
		}
		if got := r.windowReports(); len(got) != 1 || got[0]["closed"] != fmt.Sprint(removed) || got[0]["why"] != "in-flight" {
			t.Errorf("reported %v, want its end at %d", got, removed)
		}
	})
}
