//go:build soak

package scripts_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
)

// reserveAs is reserve for a dispatcher.
func (r *rig) reserveAs(dispatcher string, want int64) reserved {
	r.t.Helper()
	r.asker = dispatcher
	defer func() { r.asker = "" }()
	return r.reserve(want, 200_000)
}

// standby are the dispatchers that claims wake, the next one first.
func (r *rig) standby() string {
	r.t.Helper()
	name, err := r.c.HGet(r.ctx, r.key("pace"), "standbys").Result()
	if !errors.Is(err, redis.Nil) {
		r.ok(err)
	}
	return strings.TrimSpace(name)
}

// onFlowsAndGroups runs a test on both servers, in a bucket with flows and in one whose flows are in groups. name
// is that of the flow that is called so: with groups there are as many of these, each with one.
func onFlowsAndGroups(t *testing.T, bounds flowSettings, test func(t *testing.T, r *rig, name func(string) string)) {
	t.Helper()
	t.Run("flows", func(t *testing.T) {
		onBoth(t, func(t *testing.T, r *rig) {
			r.configureFlows(settings{rateCount: 100}, bounds)
			test(t, r, func(name string) string { return name })
		})
	})
	t.Run("groups", func(t *testing.T) {
		onBoth(t, func(t *testing.T, r *rig) {
			r.configureGroups(settings{rateCount: 100}, flowSettings{}, bounds)
			test(t, r, func(name string) string { return path(name, "x") })
		})
	})
}

// A claim that may leave its dispatcher without workers wakes the dispatcher that found nothing last.
func TestStandby(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		standby string
		want    int64  // workers, for 21 slots; none if it is below 0
		wakes   string // by the first claim
		again   string // by the next one, which is for one worker
	}{
		"no worker left":                  {standby: "d2", want: 1, wakes: "b d2"},
		"given back":                      {standby: "d2", want: -1, wakes: "b d2"},
		"too few workers for another one": {standby: "d2", want: 40, wakes: "b d2"},
		"workers for another one":         {standby: "d2", want: 50, again: "b d2"},
		"no standby":                      {want: 1},
		"itself":                          {standby: "d1", want: 1},
		"one after the other":             {standby: "d2 d3", want: 1, wakes: "b d2", again: "b d3"},
		"one that asked twice":            {standby: "d2 d3 d2", want: 1, wakes: "b d3", again: "b d2"},
	} {
		t.Run(name, func(t *testing.T) {
			onFlowsAndGroups(t, flowSettings{}, func(t *testing.T, r *rig, name func(string) string) {
				r.putIn(name("a"), 3, 0, named("a", 90)...)
				r.begin()
				r.hdel("pace", "standbys") // to begin, the rig has asked before there were slots
				of := r.reserveAs("d1", max(c.want, 1))
				for _, d := range strings.Fields(c.standby) { // they ask while all turns are reserved
					if of := r.reserveAs(d, 10); len(of.flows)+len(of.groups) > 0 || !strings.HasSuffix(r.standby(), d) {
						t.Fatalf("%s got %v of what is reserved; standby is %q", d, of.flows, r.standby())
					}
				}
				claim := ask{dispatcher: "d1", claim: "first", want: c.want}
				if got := r.woken(func() { r.claimFlows(claim, of) }); got != c.wakes {
					t.Errorf("it wakes %q, want %q; standby is %q", got, c.wakes, r.standby())
				}
				if got := r.woken(func() { r.claimFlows(claim, of) }); c.want > 0 && got != "" {
					t.Errorf("sent again, it wakes %q", got)
				}
				r.pass(150_000)
				if got := r.woken(func() { r.drain(ask{dispatcher: "d1", want: 1}) }); got != c.again {
					t.Errorf("the next one wakes %q, want %q", got, c.again)
				}
			})
		})
	}
}

// In a bucket without flows, too, a claim for which no slot is left makes a standby, and one that takes all
// slots with its last workers wakes it. An empty bucket has none.
func TestStandbyWithoutFlows(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 100})
		r.claim(ask{dispatcher: "d1"})
		must.Equal(t, r.standby(), "", "of an empty bucket is the standby")
		r.put(named("a", 90)...)
		first := r.claim(ask{dispatcher: "d1", want: 100})
		if len(first.jobs) == 0 || r.standby() != "" {
			t.Fatalf("%d jobs; standby is %q", len(first.jobs), r.standby())
		}
		if second := r.claim(ask{dispatcher: "d2", want: 100}); len(second.jobs) > 0 || r.standby() != "d2" {
			t.Fatalf("%d jobs; standby is %q", len(second.jobs), r.standby())
		}
		r.pass(150_000)
		if got := r.woken(func() { r.claim(ask{dispatcher: "d1", want: 100}) }); got != "" {
			t.Errorf("with workers, it wakes %q", got)
		}
		r.pass(150_000)
		if got := r.woken(func() { r.claim(ask{dispatcher: "d1", want: 2}) }); got != "b d2" || r.standby() != "" {
			t.Errorf("it wakes %q; standby is %q", got, r.standby())
		}
	})
}

// The first slot that nobody has is told also where the next turn is later, and where nothing is handed out it is 0.
func TestFreeSlot(t *testing.T) {
	onFlowsAndGroups(t, flowSettings{rateCount: 1, ratePer: 5 * second}, func(t *testing.T, r *rig, name func(string) string) {
		r.putIn(name("a"), 3, 0, "a0", "a1")
		r.begin()
		c := r.drain(ask{})
		if c.ids() != "a0" || c.freeSlot != c.jobs[0].slot+10_000 || c.next != c.jobs[0].slot+5*second {
			t.Errorf("claimed %q at %d; the first slot that is free is %d, next %d", c.ids(), c.jobs[0].slot, c.freeSlot, c.next)
		}
		r.hset("settings", "paused", 1)
		must.Equal(t, r.claimFlows(ask{}, reserved{}).freeSlot, 0, "of a paused bucket the first slot that is free is")
	})
}
