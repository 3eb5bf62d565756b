package producer_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
)

// Of changes at the same moment none is lost.
func TestOverridesOfALimitAtOnce(t *testing.T) {
	t.Parallel()
	b := rig.Bucket("overriddenatonce", 1000)
	limit := admission.Limit{Name: "l", Algorithm: admission.FixedWindow, Limit: rig.Rate("10/744h"), Tiers: map[string]admission.Rate{}}
	const tiers = 8
	for i := range tiers {
		limit.Tiers[fmt.Sprint("tier", i)] = rig.Rate("1/744h")
	}
	b.Limits = []admission.Limit{limit}
	processes := rig.Clients(t, tiers, b)
	var all sync.WaitGroup
	for i, c := range processes {
		all.Go(func() {
			patch := admission.Patch{Tiers: map[string]admission.Rate{fmt.Sprint("tier", i): rig.Rate(fmt.Sprint(20+i, "/744h"))}}
			if err := c.OverrideLimit(t.Context(), "l", patch); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for i := range tiers {
		job := shaper.Job{Identity: admission.Identity{Tier: fmt.Sprint("tier", i)}}
		if _, last := rig.Admitted(t, processes[0], 1, job); last.Decisions[0].Quota != int64(20+i) {
			t.Errorf("tier %d: %+v", i, last.Decisions[0])
		}
	}
}

// A limit that an operator changes is another one for every process at once,
// keeps what was spent, and is the configured one again when it is reset.
func TestOverrideLimit(t *testing.T) {
	t.Parallel()
	b := rig.Bucket("overridden", 1000)
	b.Limits = []admission.Limit{{Name: "l", Algorithm: admission.FixedWindow, Per: []string{admission.PerCaller}, Limit: rig.Rate("10/744h")}}
	both := rig.Clients(t, 2, b)
	one, other := both[0], both[1]
	if in, _ := rig.Admitted(t, one, 6, rig.Caller("ada")); in != 6 {
		t.Fatalf("%d of 6", in)
	}
	if in, _ := rig.Admitted(t, other, 1, rig.Caller("ada")); in != 1 {
		t.Fatalf("%d of 1", in)
	}
	lower := rig.Rate("5/744h")
	must.OK(t, other.OverrideLimit(t.Context(), "l", admission.Patch{Limit: &lower}))
	for i, c := range both {
		in, last := rig.Admitted(t, c, 1, rig.Caller("ada"))
		if in != 0 || last.Decisions[0].Quota != 5 || last.Decisions[0].Remaining != 0 {
			t.Errorf("process %d: %d in with 7 of 5 spent: %+v", i, in, last)
		}
	}
	higher, shadow := rig.Rate("9/744h"), admission.Shadow
	must.OK(t, one.OverrideLimit(t.Context(), "l", admission.Patch{Limit: &higher}))
	if in, _ := rig.Admitted(t, other, 3, rig.Caller("ada")); in != 2 {
		t.Errorf("%d in with 7 of 9 spent", in)
	}
	must.OK(t, one.OverrideLimit(t.Context(), "l", admission.Patch{Mode: &shadow}))
	if in, last := rig.Admitted(t, other, 3, rig.Caller("ada")); in != 3 || !last.Decisions[0].WouldRefuse || last.Decisions[0].Quota != 9 {
		t.Errorf("in shadow mode %d of 3 in: %+v", in, last.Decisions)
	}
	must.OK(t, other.ResetLimit(t.Context(), "l"))
	if in, last := rig.Admitted(t, one, 3, rig.Caller("ada")); in != 1 || last.Decisions[0].Quota != 10 {
		t.Errorf("as configured again, with 9 of 10 spent: %d in: %+v", in, last.Decisions)
	}
	tooMuch := int64(7)
	err := one.OverrideLimit(t.Context(), "l", admission.Patch{Burst: &tooMuch})
	var unfit *admission.InvalidPatchError
	if !errors.As(err, &unfit) || !strings.Contains(err.Error(), "burst") {
		t.Errorf("a patch that does not fit: %v", err)
	}
	if err := one.OverrideLimit(t.Context(), "nobody", admission.Patch{Limit: &higher}); err != nil {
		t.Errorf("a limit that no bucket has: %v", err)
	}
}

// What a dispatcher writes holds for all processes, those too that have not reloaded yet. A reload of a producer alone changes nothing.
func TestReconfigure(t *testing.T) {
	t.Parallel()
	b := rig.Bucket("reloaded", 1000)
	b.Limits = []admission.Limit{{Name: "l", Limit: rig.Rate("6/744h")}}
	both := rig.Clients(t, 2, b)
	for _, c := range both {
		rig.Admitted(t, c, 1, rig.Caller("ada"))
	}
	b.Revision++
	b.Limits = append(slices.Clone(b.Limits), admission.Limit{Name: "tenant", Per: []string{"header:x-tenant"}, Limit: rig.Rate("2/744h")})
	must.OK(t, both[0].Reconfigure([]shaper.Bucket{b}))
	if in, last := rig.Admitted(t, both[0], 1, rig.Caller("ada")); in != 1 || len(last.Decisions) != 1 {
		t.Errorf("a producer has changed the limits: %d in: %+v", in, last)
	}
	if err := both[0].JoinPools(t.Context()); err != nil { // as a dispatcher
		t.Fatal(err)
	}
	of := func(tenant string) shaper.Job {
		return shaper.Job{Identity: admission.Identity{Caller: "ada", Headers: map[string]string{"X-Tenant": tenant}}}
	}
	if in, last := rig.Admitted(t, both[0], 3, of("a")); in != 2 || len(last.Decisions) != 2 || last.Refusal.Limits[0] != "tenant" {
		t.Errorf("%d in: %+v", in, last)
	}
	if in, last := rig.Admitted(t, both[1], 1, of("a")); in != 0 || len(last.Decisions) != 2 {
		t.Errorf("a process that has not reloaded: %d in: %+v", in, last)
	}
	if got := both[1].LimitHeaders("reloaded"); fmt.Sprint(got) != "[X-Tenant]" {
		t.Errorf("headers %v", got)
	}
	in, last := rig.Admitted(t, both[1], 1, rig.Caller("ada"))
	if in != 0 || last.Refusal.Reason != shaper.ReasonIdentity || last.Refusal.Limits[0] != "tenant" || !strings.Contains(last.Refusal.Detail, "X-Tenant") {
		t.Errorf("without the header: %+v", last)
	}
	b.Limits[0].Limit = admission.Rate{}
	if err := both[0].Reconfigure([]shaper.Bucket{b}); err == nil {
		t.Error("a bucket that is not valid was taken")
	}
}

// Jobs of a call may have different callers, tiers and identities; each is
// decided as it would be alone.
func TestMixedCallers(t *testing.T) {
	t.Parallel()
	b := rig.Bucket("mixed", 1000)
	b.Limits = []admission.Limit{{Name: "l", Per: []string{admission.PerCaller}, Limit: rig.Rate("2/744h"),
		Tiers: map[string]admission.Rate{"pro": rig.Rate("4/744h")}}}
	c := rig.Clients(t, 1, b)[0]
	var jobs []shaper.Job
	for i := range 15 {
		job := shaper.Job{Bucket: "mixed", Payload: []byte("x"), Identity: admission.Identity{Caller: []string{"ada", "bob", ""}[i%3]}}
		if i%3 == 1 {
			job.Identity.Tier = "pro"
		}
		jobs = append(jobs, job)
	}
	receipts := must.Get(c.Enqueue(t.Context(), jobs...))(t)
	in := map[string]int{}
	for i, r := range receipts {
		who := jobs[i].Identity.Caller
		switch {
		case r.Refusal == nil:
			in[who]++
			if want := map[string]int64{"ada": 2, "bob": 4}[who]; r.Decisions[0].Quota != want {
				t.Errorf("%s has a quota of %d", who, r.Decisions[0].Quota)
			}
		case who == "" && r.Refusal.Reason != shaper.ReasonIdentity, who != "" && r.Refusal.Reason != shaper.ReasonLimit:
			t.Errorf("job %d: %+v", i, r.Refusal)
		}
	}
	must.Equal(t, fmt.Sprint(in), "map[ada:2 bob:4]", "admitted %v", in)
}

func TestShedByPriority(t *testing.T) {
	t.Parallel()
	b := rig.Bucket("shed", 10)
	b.Capacity, b.Shed = 10, shaper.Shed{Low: 50, Normal: 70, High: 90}
	c := rig.Clients(t, 1, b)[0]
	for _, step := range []struct {
		priority shaper.Priority
		in       int
		reason   shaper.Reason
	}{{shaper.PriorityLow, 5, shaper.ReasonShed}, {shaper.PriorityNormal, 2, shaper.ReasonShed}, {"", 0, shaper.ReasonShed}, {shaper.PriorityHigh, 2, shaper.ReasonShed}, {shaper.PriorityCritical, 1, shaper.ReasonBucketFull}} {
		in, last := rig.Admitted(t, c, 8, shaper.Job{Priority: step.priority})
		if in != step.in || last.Refusal.Reason != step.reason || last.Refusal.RetryAfter <= 0 {
			t.Errorf("priority %q: %d in, then %+v; want %d, %s", step.priority, in, last.Refusal, step.in, step.reason)
		}
		if step.reason == shaper.ReasonShed && !strings.Contains(last.Refusal.Detail, "shed.") {
			t.Errorf("detail %q", last.Refusal.Detail)
		}
	}
}

// A refusal says when to come back, and that is true: also of a full bucket.
func TestFullBucketSaysWhenThereIsRoom(t *testing.T) {
	t.Parallel()
	b := rig.Bucket("full", 20)
	b.Capacity, b.Shed = 4, shaper.NoShedding
	w := rig.NewWorld(t, b)
	if in, _ := rig.Admitted(t, w.Client, 4, shaper.Job{}); in != 4 {
		t.Fatal(in)
	}
	_, last := rig.Admitted(t, w.Client, 1, shaper.Job{})
	if last.Refusal == nil || last.Refusal.RetryAfter < time.Millisecond || last.Refusal.RetryAfter > 100*time.Millisecond {
		t.Fatalf("%+v", last.Refusal)
	}
}
