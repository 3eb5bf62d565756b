package scripts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

const wasGone = 8 // a result of settle.lua

const flowDisabled = 16 // a code of enqueue.lua

// disabling are the kinds of buckets that have flows to disable. Jobs are of a flow to be disabled, and of another one.
func disabling(t *testing.T, test func(t *testing.T, r *rig, flow, other string)) {
	t.Helper()
	onBoth(t, func(t *testing.T, r *rig) {
		t.Run("flows", func(t *testing.T) {
			r := r.fresh(t, "flows")
			r.configureFlows(settings{}, flowSettings{})
			test(t, r, "a", "b")
		})
		t.Run("groups", func(t *testing.T) {
			r := r.fresh(t, "groups")
			r.configureGroups(settings{}, flowSettings{}, flowSettings{})
			test(t, r, path("g", "a"), path("g", "b"))
		})
	})
}

// emptyDisabled runs empty_disabled.lua until nothing is left, and returns how many jobs it made dead letters of.
func (r *rig) emptyDisabled(flow string, atMost int) (deadLetters int64) {
	r.t.Helper()
	for {
		in := lua.NewReader(r.run(lua.EmptyDisabled, r.keysOf(lua.EmptyDisabled, flow),
			r.withFlows(), flow, atMost, 1<<20, 5*second, "flow-disabled"))
		n, left := in.Int(), in.Int()
		r.ok(in.Err())
		if deadLetters += n; left == 0 {
			return deadLetters
		}
		if n > int64(atMost) {
			r.t.Fatalf("%d jobs in one run of %d", n, atMost)
		}
	}
}

// looksAgain is when a disabled flow is to be looked at, -1 where it is in no list of these.
func (r *rig) looksAgain(flow string) string {
	r.t.Helper()
	for _, z := range r.scored("disabled") {
		if z.Member == flow {
			return fmt.Sprintf("%.0f", z.Score)
		}
	}
	return "none"
}

// A receiver that is gone disables its flow: nothing leaves any more, nothing gets in, what waits becomes dead letters, and other flows
// go on as before.
func TestGoneDisablesTheFlow(t *testing.T) {
	disabling(t, func(t *testing.T, r *rig, flow, other string) {
		r.putIn(flow, 3, 0, "gone", "back", "w1", "w2")
		r.putIn(flow, 1, 0, "urgent")
		r.putIn(other, 3, 0, "o1", "o2")
		if a := r.enqueue(nil, entry{id: "later", due: "+5000000"}.in(r, flow)); a[0].code != 2 {
			t.Fatalf("a delayed job got %+v", a)
		}
		var held []lease
		r.pass(second)
		for _, job := range r.drain(ask{want: 5}).jobs {
			if job.id == "gone" || job.id == "back" {
				held = append(held, job)
				continue
			}
			r.settle(outcome{lease: job, result: returned})
		}
		must.Be(t, len(held), 2, "jobs were claimed")
		if i := slices.IndexFunc(held, func(l lease) bool { return l.id == "gone" }); i == 1 {
			slices.Reverse(held)
		}
		gone := outcome{lease: held[0], result: wasGone, signal: accepted, reason: "http_410", last: `{"cause":"permanent","status":410}`, claimedAt: r.now()}
		for range 2 { // the second is stale
			r.settle(gone)
		}
		if !slices.Equal(r.disabled, []string{flow}) {
			t.Errorf("disabled are %q", r.disabled)
		}
		own := r.field("flow_settings", flow)
		if !strings.HasPrefix(own, "- - - - - - - ") || !strings.Contains(own, "/http_410\n") {
			t.Errorf("its settings are %q", own)
		}
		if got := r.looksAgain(flow); got == "none" || got == "+Inf" {
			t.Errorf("it is looked at %s", got)
		}
		for _, e := range []entry{{id: "new"}, {id: "new later", due: "+5000000"}} {
			if a := r.enqueue(nil, e.in(r, flow)); a[0].code != flowDisabled || a[0].position == 0 {
				t.Errorf("a new job got %+v", a)
			}
		}
		if a := r.enqueue(nil, entry{id: "w1", content: ""}.in(r, flow)); a[0].code != 3 {
			t.Errorf("a job that waits was answered as %+v, not as a duplicate", a)
		}
		if a := r.enqueue(nil, entry{id: "o3"}.in(r, other)); a[0].code != 1 {
			t.Errorf("a job of the other flow got %+v", a)
		}
		r.pass(second)
		if ids := strings.Fields(r.drain(ask{}).ids()); !slices.Equal(slices.Sorted(slices.Values(ids)), []string{"o1", "o2", "o3"}) {
			t.Errorf("what left is %q", ids)
		}
		// What waits, and what was in flight and comes back.
		must.Equal(t, r.emptyDisabled(flow, 2), 4, "jobs became dead letters")
		if again := r.looksAgain(flow); again == "none" || again == "+Inf" {
			t.Errorf("with a job in flight it is looked at %s", again)
		}
		r.settle(outcome{lease: held[1], result: retry, delay: second, signal: accepted})
		must.Equal(t, r.emptyDisabled(flow, 500), 1, "jobs came back")
		must.Equal(t, r.looksAgain(flow), "+Inf", "once it is empty it is looked at")
		r.wantStates(map[string]int64{"gone": isDead, "back": isDead, "w1": isDead, "w2": isDead, "urgent": isDead, "later": isDead})
		for id, cause := range map[string]string{"gone": "permanent", "w1": "flow-disabled", "later": "flow-disabled", "back": "flow-disabled"} {
			if meta := r.job(id).meta; !strings.Contains(meta, `"cause":"`+cause+`"`) {
				t.Errorf("%s died with %q, want %s", id, meta, cause)
			}
		}
		must.Equal(t, r.redrive("w1")[0], 6, "a redrive was answered")
		b := r.inspect()
		if b.disabled != 1 || b.dead != 6 || b.scheduled != 0 || b.unfinished != 3 {
			t.Errorf("the bucket has %+v", b)
		}
		if before, after := r.controlFlow(flow, "enable"); before != own || after != "" {
			t.Errorf("enabled: %q, then %q", before, after)
		}
		must.Equal(t, r.looksAgain(flow), "none", "enabled, it is looked at")
		must.Equal(t, r.redrive("w1")[0], 1, "then a redrive was answered")
		r.pass(second)
		must.Equal(t, r.drain(ask{}).ids(), "w1", "then left")
		must.Equal(t, r.emptyDisabled(flow, 500), 0, "a late look made dead letters of jobs")
	})
}

// A pause and settings of a flow outlast that it is disabled.
func TestDisabledFlowKeepsItsSettings(t *testing.T) {
	disabling(t, func(t *testing.T, r *rig, flow, _ string) {
		r.putIn(flow, 3, 0, "gone")
		r.pass(second)
		job := r.drain(ask{}).jobs[0]
		r.controlFlow(flow, "set", "5", "1000000", "", "", "", "", `"https://a.example"`)
		_, before := r.controlFlow(flow, "pause", `{"by":"anna"}`)
		r.settle(outcome{lease: job, result: wasGone, reason: "http_410"})
		must.Be(t, len(r.disabled), 1, "disabled are %q", r.disabled)
		for _, action := range []string{"resume", "reset"} {
			if _, after := r.controlFlow(flow, action); !strings.Contains(after, "/http_410\n") {
				t.Errorf("%s: %q", action, after)
			}
		}
		r.controlFlow(flow, "set", "5", "1000000", "", "", "", "", `"https://a.example"`)
		r.controlFlow(flow, "pause", `{"by":"anna"}`)
		if _, after := r.controlFlow(flow, "enable"); stripTime(after) != stripTime(before) {
			t.Errorf("it was %q, and is %q", before, after)
		}
	})
}

// stripTime replaces the time of a pause.
func stripTime(own string) string {
	line, rest, _ := strings.Cut(own, "\n")
	fields := strings.Fields(line)
	fields[6] = "T"
	return strings.Join(fields, " ") + "\n" + rest
}

// A breaker that is open for too long disables its flow with the next probe that fails; not the bucket, nor a pool.
func TestLongOpenBreakerDisables(t *testing.T) {
	listening(t, "60000000 100 2 1000000 4000000 9000000", func(t *testing.T, l *listener) {
		l.put(numbered(20)...)
		fail := func() {
			t.Helper()
			for _, job := range l.take(1).jobs {
				l.answer(job, retry, failed, 100*second)
			}
		}
		fail()
		l.pass(second / 10)
		fail()
		if l.number(fieldBreaker) != 1 {
			t.Fatalf("the breaker is not open: %q", l.text())
		}
		opened, isFlow := l.now(), l.flow != "" && !strings.Contains(t.Name(), "bucket_with_flows")
		for l.now() < opened+30*second && len(l.disabled) == 0 {
			l.pass(second)
			fail()
		}
		took := l.now() - opened
		if isFlow != (len(l.disabled) == 1) || isFlow && (took < 9*second || took > 14*second) {
			t.Errorf("after %d s disabled are %q", took/second, l.disabled)
		}
		if !isFlow {
			return
		}
		if own := l.field("flow_settings", l.flow); !strings.Contains(own, "/http_429\n") {
			t.Errorf("its settings are %q", own) // the reason that answer sends
		}
		l.silent("once it is disabled")
		l.pass(100 * second)
		must.Equal(t, l.take(5).ids(), "", "then left")
	})
}

// A run reads no more bodies than it may: they may be large.
func TestDisabledFlowBounds(t *testing.T) {
	disabling(t, func(t *testing.T, r *rig, flow, _ string) {
		r.putIn(flow, 3, 0, "gone", "w1", "w2", "w3", "w4", "w5")
		large := strings.Repeat("x", 1000)
		for _, id := range []string{"w1", "w2", "w3", "w4", "w5"} {
			body := r.field("body", id)
			r.hset("body", id, body+large)
		}
		r.pass(second)
		for _, job := range r.drain(ask{want: 1}).jobs {
			r.settle(outcome{lease: job, result: wasGone, signal: accepted, reason: "http_410", claimedAt: r.now()})
		}
		var sizes []int64
		for left := int64(1); left > 0; {
			in := lua.NewReader(r.run(lua.EmptyDisabled, r.keysOf(lua.EmptyDisabled, flow),
				r.withFlows(), flow, 200, 2000, 5*second, "flow-disabled"))
			sizes = append(sizes, in.Int())
			left = in.Int()
			r.ok(in.Err())
		}
		must.Equal(t, fmt.Sprint(sizes), "[2 2 1]", "runs of %v jobs", sizes)
	})
}
