//go:build soak

package lua_test

import (
	"strings"
	"testing"
	"time"
)

// reserveAs is reserve for a dispatcher.
func (r *rig) reserveAs(dispatcher string, want int64) reserved {
	r.t.Helper()
	r.asker = dispatcher
	defer func() { r.asker = "" }()
	return r.reserve(want, 200_000)
}

// sendAway has these dispatchers ask while all turns are reserved.
func (r *rig) sendAway(dispatchers ...string) {
	r.t.Helper()
	for _, d := range dispatchers {
		if of := r.reserveAs(d, 10); len(of.flows)+len(of.groups) > 0 || of.next < of.now+second/2 {
			r.t.Fatalf("%s got %v of what is reserved, or comes back in %d µs", d, of.flows, of.next-of.now)
		}
	}
}

// away are the dispatchers that are noted.
func (r *rig) away() string {
	r.t.Helper()
	names, err := r.c.ZRange(r.ctx, r.key("sent_away"), 0, -1).Result()
	r.ok(err)
	return strings.Join(names, " ")
}

// onFlowsAndGroups runs a test on both servers, in a bucket with flows and in one whose flows are in groups. name
// is that of the flow that is called so: with groups there are as many of these, each with one.
func onFlowsAndGroups(t *testing.T, bounds flowSettings, test func(t *testing.T, r *rig, name func(string) string)) {
	t.Helper()
	t.Run("flows", func(t *testing.T) {
		t.Parallel()
		onBoth(t, func(t *testing.T, r *rig) {
			r.configureFlows(settings{rateCount: 100}, bounds)
			test(t, r, func(name string) string { return name })
		})
	})
	t.Run("groups", func(t *testing.T) {
		t.Parallel()
		onBoth(t, func(t *testing.T, r *rig) {
			r.configureGroups(settings{rateCount: 100}, flowSettings{}, bounds)
			test(t, r, func(name string) string { return path(name, "x") })
		})
	})
}

// A claim wakes one of those that were sent away as the dispatcher that claims has reserved all turns: if it puts
// them back for sooner than they were told, and has no workers to do the same again.
func TestSentAway(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		bounds flowSettings // of the flow, or of its group
		sent   string
		want   int64  // workers, for 21 slots; none if it is below 0
		wakes  string // by the first claim
		again  string // by the next one, which is for one worker
	}{
		"no worker left":                  {sent: "d2", want: 1, wakes: "b d2"},
		"given back":                      {sent: "d2", want: -1, wakes: "b d2"},
		"too few workers for another one": {sent: "d2", want: 40, wakes: "b d2"},
		"workers for another one":         {sent: "d2", want: 50, again: "b d2"},
		"nobody was sent away":            {want: 1},
		"one after the other":             {sent: "d2 d3", want: 1, wakes: "b d2", again: "b d3"},
		"one that asked twice":            {sent: "d2 d2", want: 1, wakes: "b d2"},
		"back soon enough":                {bounds: flowSettings{rateCount: 1, ratePer: 5 * second}, sent: "d2", want: 1},
		"back too late":                   {bounds: flowSettings{rateCount: 2, ratePer: second}, sent: "d2", want: 1, wakes: "b d2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onFlowsAndGroups(t, c.bounds, func(t *testing.T, r *rig, name func(string) string) {
				r.putIn(name("a"), 3, 0, named("a", 90)...)
				r.begin()
				of := r.reserveAs("d1", max(c.want, 1))
				r.sendAway(strings.Fields(c.sent)...)
				claim := ask{dispatcher: "d1", claim: "first", want: c.want}
				if got := r.woken(func() { r.claimFlows(claim, of) }); got != c.wakes {
					t.Errorf("it wakes %q, want %q", got, c.wakes)
				}
				if got := r.woken(func() { r.claimFlows(claim, of) }); c.want > 0 && got != "" {
					t.Errorf("sent again, it wakes %q", got)
				}
				if ttl := r.ttl(r.key("sent_away")); c.sent != "" && (ttl <= 0 || ttl > 2*time.Second) {
					t.Errorf("it is noted for %s who was sent away", ttl)
				}
				r.pass(150_000)
				if got := r.woken(func() { r.drain(ask{dispatcher: "d1", want: 1}) }); got != c.again {
					t.Errorf("the next one wakes %q, want %q", got, c.again)
				}
			})
		})
	}
}

// A claim, too, sends away: where it leaves nothing but what others have reserved.
func TestSentAwayByAClaim(t *testing.T) {
	t.Parallel()
	onFlowsAndGroups(t, flowSettings{}, func(t *testing.T, r *rig, name func(string) string) {
		r.putIn(name("a"), 3, 0, named("a", 9)...)
		r.putIn(name("b"), 3, 0, "b0")
		r.begin()
		first, second := r.reserveAs("d1", 1), r.reserveAs("d2", 10)
		c := r.claimFlows(ask{dispatcher: "d2", want: 10}, second)
		if c.ids() != "b0" || r.away() != "d2" {
			t.Fatalf("claimed %q; %q are noted", c.ids(), r.away())
		}
		if got := r.woken(func() { r.claimFlows(ask{dispatcher: "d1", want: 1}, first) }); got != "b d2" {
			t.Errorf("%q is woken", got)
		}
	})
}

// Who is back need not be woken, nor who was told to come back before now: it came, or is no more.
func TestSentAwayAndBack(t *testing.T) {
	t.Parallel()
	onFlowsAndGroups(t, flowSettings{}, func(t *testing.T, r *rig, name func(string) string) {
		r.putIn(name("a"), 3, 0, named("a", 90)...)
		r.begin()
		of := r.reserveAs("d1", 100)
		r.sendAway("d2", "d3")
		r.claimFlows(ask{dispatcher: "d1"}, of)
		r.pass(150_000)
		of = r.reserveAs("d2", 1)
		if r.away() != "d3" {
			t.Errorf("%q are noted", r.away())
		}
		r.pass(second)
		if got := r.woken(func() { r.claimFlows(ask{dispatcher: "d2", want: 1}, of) }); got != "" {
			t.Errorf("%q is woken", got)
		}
		of = r.reserveAs("d2", 1)
		r.sendAway("d4")
		if r.away() != "d4" {
			t.Errorf("%q are noted", r.away())
		}
		if got := r.woken(func() { r.claimFlows(ask{dispatcher: "d2", want: 1}, of) }); got != "b d4" {
			t.Errorf("%q is woken", got)
		}
	})
}

// Nobody is noted who would come back no earlier for being woken: as no turn is reserved that is so far ahead, or as it
// has no worker left.
func TestNobodyIsSentAway(t *testing.T) {
	t.Parallel()
	onFlowsAndGroups(t, flowSettings{rateCount: 1, ratePer: 5 * second}, func(t *testing.T, r *rig, name func(string) string) {
		r.putIn(name("a"), 3, 0, "a0", "a1")
		r.putIn(name("b"), 3, 0, "b0")
		r.begin()
		first, second := r.reserveAs("d1", 1), r.reserveAs("d2", 1)
		r.claimFlows(ask{dispatcher: "d2", want: 1}, second)
		if r.away() != "" {
			t.Errorf("without workers, %q are noted", r.away())
		}
		r.claimFlows(ask{dispatcher: "d1", want: 1}, first)
		if of := r.reserveAs("d3", 1); of.next < of.now || r.away() != "" {
			t.Errorf("it comes back in %d µs; %q are noted", of.next-of.now, r.away())
		}
	})
}

// Who steps back as all slots are taken is woken when the one that serves has few workers left, although turns wait within its
// horizon. Who does not comes back by itself, and is not noted.
func TestWhoStepsBackIsWoken(t *testing.T) {
	t.Parallel()
	onFlowsAndGroups(t, flowSettings{}, func(t *testing.T, r *rig, name func(string) string) {
		r.putIn(name("a"), 3, 0, named("a", 90)...)
		r.begin()
		c := r.drain(ask{dispatcher: "d1"})
		if len(c.jobs) == 0 || c.freeSlot != c.jobs[len(c.jobs)-1].slot+10_000 || c.next != c.freeSlot {
			t.Fatalf("claimed %q; the first slot that is free is %d, next %d", c.ids(), c.freeSlot, c.next)
		}
		if of := r.reserveAs("d3", 10); of.slots != 0 || of.next != c.freeSlot || r.away() != "" {
			t.Errorf("%d slots are left, the next is %d; %q are noted", of.slots, of.next, r.away())
		}
		r.stepsBack = true
		of := r.reserveAs("d2", 10)
		r.stepsBack = false
		if of.slots != 0 || of.next != c.freeSlot || r.away() != "d2" {
			t.Errorf("%d slots are left, the next is %d; %q are noted", of.slots, of.next, r.away())
		}
		r.pass(150_000)
		if got := r.woken(func() { r.drain(ask{dispatcher: "d1", want: 100}) }); got != "" {
			t.Errorf("with workers, it wakes %q", got)
		}
		r.pass(150_000)
		if got := r.woken(func() { r.drain(ask{dispatcher: "d1", want: 1}) }); got != "b d2" || r.away() != "d1" {
			t.Errorf("it wakes %q; %q are noted", got, r.away())
		}
		// Who finds slots is back.
		r.pass(150_000)
		r.stepsBack = true
		if of := r.reserveAs("d1", 1); len(of.flows)+len(of.groups) == 0 || r.away() != "" {
			t.Errorf("it finds no turn; %q are noted", r.away())
		}
	})
}

// The first slot that nobody has is told also where the next turn is later, and where nothing is handed out it is 0.
func TestFreeSlot(t *testing.T) {
	t.Parallel()
	onFlowsAndGroups(t, flowSettings{rateCount: 1, ratePer: 5 * second}, func(t *testing.T, r *rig, name func(string) string) {
		r.putIn(name("a"), 3, 0, "a0", "a1")
		r.begin()
		c := r.drain(ask{})
		if c.ids() != "a0" || c.freeSlot != c.jobs[0].slot+10_000 || c.next != c.jobs[0].slot+5*second {
			t.Errorf("claimed %q at %d; the first slot that is free is %d, next %d", c.ids(), c.jobs[0].slot, c.freeSlot, c.next)
		}
		r.ok(r.c.HSet(r.ctx, r.key("conf"), "paused", 1).Err())
		if c := r.claimFlows(ask{}, reserved{}); c.freeSlot != 0 {
			t.Errorf("of a paused bucket the first slot that is free is %d", c.freeSlot)
		}
	})
}
