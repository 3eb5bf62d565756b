package scripts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// allEvents are the kinds that there are.
const allEvents = "job.dead flow.disabled flow.recovered breaker.open bucket.full bucket.paused"

// notes has a bucket note events.
func (r *rig) notes(kinds string) {
	r.t.Helper()
	r.hset("settings", "events", kinds)
}

// outboxEvent is an event that is to be moved on.
type outboxEvent struct {
	name   string
	count  int64
	since  int64
	detail string
}

// moveEvents takes those that were moved out of the outbox, and returns those that are to be moved.
func (r *rig) moveEvents(moved ...outboxEvent) []outboxEvent {
	r.t.Helper()
	args := []any{100}
	for _, e := range moved {
		args = append(args, e.name, e.since)
	}
	in := lua.NewReader(r.run(lua.MoveEvents, r.keysOf(lua.MoveEvents), args...))
	var events []outboxEvent
	for in.Left() > 0 {
		events = append(events, outboxEvent{in.Text(), in.Int(), in.Int(), in.Text()})
	}
	r.ok(in.Err())
	return events
}

// describe says the names and counts of events, in order.
func describe(events []outboxEvent) string {
	texts := make([]string, len(events))
	for i, e := range events {
		texts[i] = fmt.Sprint(e.name, "=", e.count)
	}
	slices.Sort(texts)
	return strings.Join(texts, ", ")
}

// die has a job become a dead letter.
func (r *rig) die(ids ...string) {
	r.t.Helper()
	r.put(ids...)
	r.pass(second)
	for _, job := range r.claim(ask{}).jobs {
		r.settle(outcome{lease: job, result: dead, last: `{"cause":"permanent"}`})
	}
}

// One event of a kind a minute, with a count of those that it stands for. It is handed out until it is moved on, and what comes
// meanwhile waits for its turn: none is told twice, and none is lost.
func TestOutbox(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		r.die("before anybody listens")
		r.notes(allEvents)
		if events := r.moveEvents(); len(events) > 0 {
			t.Errorf("nobody listened, and there are %+v", events)
		}
		began := r.now()
		r.die("a", "b")
		first := r.moveEvents()
		if describe(first) != "job.dead=2" || first[0].since < began || first[0].detail != `{"job":"b","reason":"permanent"}` && first[0].detail != `{"reason":"permanent","job":"b"}` {
			t.Fatalf("handed out are %+v", first)
		}
		head, detail, _ := strings.Cut(r.c.HGet(r.ctx, r.key("outbox_texts"), "job.dead").Val(), "\n")
		const newer = " - what a newer program adds"
		r.ok(r.c.HSet(r.ctx, r.key("outbox_texts"), "job.dead", head+newer+"\n"+detail).Err())
		r.die("c")
		if again := r.moveEvents(); describe(again) != "job.dead=2" || again[0].since != first[0].since {
			t.Errorf("handed out again are %+v", again)
		}
		if left := r.moveEvents(first[0]); len(left) > 0 {
			t.Errorf("within the minute are handed out %+v", left)
		}
		if left := r.moveEvents(first[0]); len(left) > 0 { // sent twice
			t.Errorf("within the minute are handed out %+v", left)
		}
		r.die("d")
		r.pass(60 * second)
		second := r.moveEvents()
		if describe(second) != "job.dead=2" || second[0].since == first[0].since {
			t.Errorf("a minute later are handed out %+v", second)
		}
		if late := r.moveEvents(first[0]); describe(late) != "job.dead=2" {
			t.Errorf("a late word of the first took the second: %+v", late)
		}
		if text := r.c.HGet(r.ctx, r.key("outbox_texts"), "job.dead").Val(); !strings.Contains(text, newer+"\n") {
			t.Errorf("what a newer program adds is gone: %q", text)
		}
		r.moveEvents(second...)
		r.pass(61_000_000)
		if left := r.moveEvents(); len(left) > 0 {
			t.Errorf("then are handed out %+v", left)
		}
		must.Equal(t, r.exists("outbox", "outbox_texts"), 0, "keys are left")
		r.die("tundish-hook-1")
		if own := r.moveEvents(); len(own) > 0 {
			t.Errorf("a job that a hook made raised %+v", own)
		}
	})
}

// The outbox is bounded, and counts what it drops.
func TestOutboxIsBounded(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{capacity: 5000}, flowSettings{maxFlows: 5000})
		r.notes("job.dead")
		const most, more = 1000, 7
		for at := 0; at < most+more; {
			var outcomes []outcome
			for ; at < most+more && len(outcomes) < 50; at++ {
				p := placed{id: fmt.Sprint("j", at), flow: fmt.Sprint("f", at), state: isInFlight, in: 30 * second}
				r.place(p)
				outcomes = append(outcomes, outcome{lease: p.lease(), result: dead, last: `{"cause":"permanent"}`})
			}
			r.settle(outcomes...)
		}
		must.Equal(t, r.hlen("outbox_texts"), most, "events are kept")
		must.Equal(t, r.field("count", "events_dropped"), fmt.Sprint(more), "were dropped, want %d", more)
		for n := range 10 {
			must.Be(t, len(r.moveEvents()), 100, "round %d: events", n)
			r.moveEvents(r.moveEvents()...)
		}
	})
}

// A caller whose jobs make events of many flows has no more of the outbox than it leaves free, and events of others are noted.
func TestEventsAreShared(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{capacity: 5000}, flowSettings{maxFlows: 5000})
		r.notes("job.dead breaker.open flow.disabled")
		n := 0
		die := func(caller string, flows int) (kept int) {
			t.Helper()
			for made := 0; made < flows; {
				var outcomes []outcome
				for ; made < flows && len(outcomes) < 50; made++ {
					n++
					p := placed{id: fmt.Sprint("j", n), flow: fmt.Sprint(caller, "-", n), state: isInFlight, in: 30 * second}
					r.place(p)
					l := p.lease()
					l.mark += caller
					o := outcome{lease: l, result: dead, last: `{"cause":"permanent"}`}
					if made%2 == 1 {
						o.result, o.signal, o.reason = wasGone, accepted, "http_410" // it disables its flow, which is an event more
					}
					outcomes = append(outcomes, o)
				}
				r.settle(outcomes...)
			}
			for _, name := range r.c.HKeys(r.ctx, r.key("outbox_texts")).Val() {
				if strings.Contains(name, " "+caller+"-") {
					kept++
				}
			}
			return kept
		}
		must.Equal(t, die(loud, 1010), 500, "one caller has events")
		must.Equal(t, die(calm, 300), 250, "another one has")
		must.Equal(t, die("", 10), 15, "jobs without a caller have")
		first := r.moveEvents()
		r.moveEvents(first...)
		r.pass(61 * second)
		for range 10 { // those that were told go, and leave room
			r.moveEvents(r.moveEvents()...)
		}
		must.Equal(t, die(third, 4), 6, "a third caller has")
	})
}

// Each kind is noted where it happens.
func TestKindsOfEvents(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{capacity: 3}, flowSettings{})
		r.notes(allEvents)
		wants := func(what, want string) {
			t.Helper()
			events := r.moveEvents()
			must.Equal(t, describe(events), want, "%s", what)
			r.moveEvents(events...)
			r.pass(61 * second)
			r.moveEvents()
		}
		r.pause()
		r.pause()
		wants("paused twice", "bucket.paused=1")
		r.resume()
		r.putIn("a", 3, 0, "a1", "a2", "a3")
		for _, id := range []string{"full", "full2", "tundish-hook-x"} {
			if a := r.enqueue(nil, entry{id: id}.in(r, "b")); a[0].code != 7 {
				t.Fatalf("%s got %+v", id, a)
			}
		}
		wants("full", "bucket.full=2")
		job := r.drain(ask{want: 1}).jobs[0]
		r.settle(outcome{lease: job, result: wasGone, signal: accepted, reason: "http_410", last: `{"cause":"permanent"}`})
		wants("gone", "flow.disabled a=1, job.dead a=1")
		r.emptyDisabled("a", 500)
		wants("emptied", "job.dead a=2")
		r.controlFlow("a", "enable")
		r.controlFlow("a", "enable")
		wants("enabled twice", "flow.recovered a=1")
		r.putIn("a", 3, second, "expires")
		r.pass(10 * second)
		r.drain(ask{})
		wants("expired", "job.dead a=1")
		r.putIn("a", 3, 0, "poison")
		for range 3 {
			r.pass(second)
			jobs := r.drain(ask{}).jobs
			must.Be(t, len(jobs), 1, "jobs")
			r.end(jobs[0].id)
			r.sweep(sweep{})
		}
		wants("poison", "job.dead a=1")
	})
}

// A breaker that opens, and one that closes, is told once, of each scope, to hooks and to the dispatcher whose outcome did it; a probe that
// fails changes nothing.
func TestEventsOfBreakers(t *testing.T) {
	listening(t, "60000000 100 2 1000000 4000000", func(t *testing.T, l *listener) {
		l.notes(allEvents)
		l.put(numbered(20)...)
		of := ""
		if l.flow != "" && !strings.Contains(t.Name(), "bucket_with_flows") {
			of = " " + l.flow
		}
		wants := func(when, want string) {
			t.Helper()
			events := l.moveEvents()
			must.Equal(t, describe(events), want, "%s", when)
			l.moveEvents(events...)
			logged := ""
			switch name := strings.TrimPrefix(of, " "); when {
			case "open":
				logged = fmt.Sprintf("opened %q (http_429)", name)
			case "closed":
				logged = fmt.Sprintf("closed %q (-)", name)
			}
			must.Equal(t, strings.Join(l.breakers, ", "), logged, "%s: the dispatcher hears", when)
			l.breakers = nil
		}
		for range 2 {
			for _, job := range l.take(1).jobs {
				l.answer(job, retry, failed, 100*second)
			}
			l.pass(second / 10)
		}
		wants("open", "breaker.open"+of+"=1")
		l.pass(70 * second)
		for _, job := range l.take(1).jobs {
			l.answer(job, retry, failed, 100*second)
		}
		wants("after a probe", "")
		l.pass(70 * second)
		for _, job := range l.take(1).jobs {
			l.answer(job, done, accepted, 0)
		}
		wants("closed", "flow.recovered"+of+"=1")
	})
}
