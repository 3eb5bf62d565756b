package shaper_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/shaper"
)

// The words that clients read, as version 1 of the API wrote them down. Each word is read again as the blocker that it was made of.
func TestBlockerWords(t *testing.T) {
	t.Parallel()
	want := strings.Fields(`paused closed group-paused flow-paused ahead pace not-before backoff last-chance returned max-in-flight group-max-in-flight group-pace
		group-quota flow-max-in-flight flow-pace quota pool-max-in-flight pool-pace pool-quota held breaker-open adaptive-pace flow-held flow-disabled
		flow-missing flow-breaker-open flow-adaptive-pace pool-held pool-breaker-open pool-adaptive-pace budget flow-budget group-budget pool-budget`)
	got := shaper.BlockerWords()
	for _, word := range got {
		var b shaper.Blocker
		if err := b.UnmarshalText([]byte(word)); err != nil || b.String() != word {
			t.Errorf("%s is read as %+v, %v", word, b, err)
		}
		if scope, _, _ := strings.Cut(word, "-"); (scope == "flow" || scope == "group" || scope == "pool") != (b.Scope != shaper.ScopeBucket) {
			t.Errorf("%s is read as a blocker of scope %s", word, b.Scope)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the words are %q, want %q", got, want)
	}
}

// The quota that holds longer is told, as one word for bucket and flow.
func TestOneQuotaIsTold(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_700_000_000, 0)
	for _, c := range []struct {
		bucket, flow time.Time
		want         []shaper.Blocker
		why          string
	}{
		{time.Time{}, time.Time{}, nil, "at its pace"},
		{at.Add(2), at.Add(1), []shaper.Blocker{{Scope: shaper.ScopeBucket, Reason: shaper.BlockQuota}}, `allows bucket "b"`},
		{at.Add(1), at.Add(2), []shaper.Blocker{{Scope: shaper.ScopeFlow, Reason: shaper.BlockQuota}}, `allows flow "f"`},
		{time.Time{}, at.Add(2), []shaper.Blocker{{Scope: shaper.ScopeFlow, Reason: shaper.BlockQuota}}, `allows flow "f"`},
	} {
		job := shaper.JobInfo{State: shaper.StateQueued, Bucket: "b", Flow: "f", Now: at, QuotaFrees: c.bucket, OfFlow: &shaper.JobFlow{QuotaFrees: c.flow}}
		got := job.BlockedBy()[1:]
		if !slices.Equal(got, c.want) || len(got) > 0 && (got[0].String() != "quota" || !strings.Contains(job.Why(), c.why)) {
			t.Errorf("%s and %s: %v, %s", c.bucket, c.flow, got, job.Why())
		}
	}
}

func TestWhy(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_700_000_000, 0)
	pause := &shaper.Pause{Since: at, By: "anna", Reason: "down"}
	held := &shaper.Downstream{HeldUntil: at.Add(time.Second), Breaker: shaper.BreakerClosed, Reason: "http_429"}
	open := &shaper.Downstream{HeldUntil: at.Add(2 * time.Second), Breaker: shaper.BreakerOpen, Failures: 12, OpenSince: at.Add(-time.Second), Reason: "timeout"}
	probing := &shaper.Downstream{HeldUntil: at.Add(time.Second), Breaker: shaper.BreakerHalfOpen, Failures: 12, OpenSince: at}
	slow := &shaper.Downstream{Rate: admission.Rate{Count: 25, Per: 2 * time.Second}, Factor: 0.25, Breaker: shaper.BreakerClosed, Reason: "http_503"}
	for _, c := range []struct {
		job       shaper.JobInfo
		blockedBy string
		why       string
		earliest  time.Time
	}{
		{shaper.JobInfo{State: shaper.StateQueued, ETA: at}, "[pace]", "it is the next", at},
		{shaper.JobInfo{State: shaper.StateQueued, Position: 3, ETA: at}, "[ahead]", "3 ahead of it", at},
		{shaper.JobInfo{State: shaper.StateQueued, Position: 3, Pause: pause}, "[paused ahead]", "paused since 2023-11-14T22:13:20Z by anna (down); 3 ahead", time.Time{}},
		{shaper.JobInfo{State: shaper.StateQueued, Position: 3, Bucket: "b"}, "[ahead]", `leave bucket "b" first, at its pace: no time is known, as the hours of the bucket may end before its turn`, time.Time{}},
		{shaper.JobInfo{State: shaper.StateScheduled, Due: at, NextSlot: at.Add(-1)}, "[not-before]", "its time has not come", at},
		{shaper.JobInfo{State: shaper.StateQueued, ETA: at, Closed: true, Opens: at}, "[closed pace]", "is closed: it opens at 2023-11-14T22:13:20Z; ", at},
		{shaper.JobInfo{State: shaper.StateScheduled, Due: at.Add(-1), Opens: at}, "[not-before]", "its time has not come", at},
		{shaper.JobInfo{State: shaper.StateScheduled, Due: at, Closed: true}, "[closed not-before]", "leaks during a drain only", time.Time{}},
		{shaper.JobInfo{State: shaper.StateScheduled, Due: at, Pause: pause}, "[paused not-before]", "down", time.Time{}},
		{shaper.JobInfo{State: shaper.StateRetrying, Attempts: 2, Due: at, NextSlot: at.Add(1), Last: shaper.LastResponse{Reason: "timeout"}}, "[backoff]",
			"attempt 2 failed (timeout)", at.Add(1)},
		{shaper.JobInfo{State: shaper.StateRetrying, Crashes: shaper.MaxCrashes - 1, Due: at}, "[last-chance]", "died 2 times in a row", at},
		{shaper.JobInfo{State: shaper.StateQueued, InFlight: 9, MaxInFlight: 8, ETA: at}, "[pace max-in-flight]", "9 of at most 8 are in flight", at},
		{shaper.JobInfo{State: shaper.StateInFlight, Pause: pause}, "[]", "a dispatcher has it", time.Time{}},
		{shaper.JobInfo{State: shaper.StateDead, Last: shaper.LastResponse{Cause: shaper.CausePoison}}, "[]", "poison", time.Time{}},
		{shaper.JobInfo{State: shaper.StateDone}, "[]", "", time.Time{}},
		{shaper.JobInfo{State: shaper.StateQueued, Now: at, Bucket: "b", Downstream: held, ETA: at.Add(time.Second)}, "[pace held]",
			`bucket "b": held until 2023-11-14T22:13:21.000Z (http_429)`, at.Add(time.Second)},
		{shaper.JobInfo{State: shaper.StateQueued, Now: at.Add(time.Second), NextSlot: at, Downstream: held, ETA: at}, "[pace]", "it is the next", at},
		{shaper.JobInfo{State: shaper.StateScheduled, Now: at, Due: at, Flow: "f", OfFlow: &shaper.JobFlow{Downstream: open}}, "[not-before flow-breaker-open]",
			`flow "f": circuit breaker open since 2023-11-14T22:13:19.000Z (12 failures in a row, the last one timeout); the next probe may leave at 2023-11-14T22:13:22.000Z`, at.Add(2 * time.Second)},
		{shaper.JobInfo{State: shaper.StateRetrying, Now: at, Due: at, OfPool: &shaper.JobPool{Name: "p", Downstream: probing}}, "[backoff pool-breaker-open]",
			`pool "p": circuit breaker half-open`, at.Add(time.Second)},
		{shaper.JobInfo{State: shaper.StateQueued, Now: at, NextSlot: at.Add(1), Bucket: "b", Downstream: slow, ETA: at}, "[pace adaptive-pace]",
			`bucket "b": slowed to 12.5/s, 25 % of its rate (http_503)`, at},
		{shaper.JobInfo{State: shaper.StateQueued, Now: at, NextSlot: at, Downstream: slow, ETA: at}, "[pace]", "it is the next", at},
		{shaper.JobInfo{State: shaper.StateQueued, Now: at, OfFlow: &shaper.JobFlow{RateFrees: at, Downstream: slow}, ETA: at}, "[pace flow-pace flow-adaptive-pace]", "slowed", at},
	} {
		if text := c.job.Why(); strings.Contains(text, "no time is known") && (!c.job.ETA.IsZero() || c.job.Pause != nil) {
			t.Errorf("%q of a job with a time, or in a bucket that is paused", text)
		}
		if got := fmt.Sprint(c.job.BlockedBy()); got != c.blockedBy {
			t.Errorf("%+v: blocked by %s, want %s", c.job, got, c.blockedBy)
		}
		if got := c.job.Why(); !strings.Contains(got, c.why) || (c.why == "") != (got == "") {
			t.Errorf("%+v: %q, want %q", c.job, got, c.why)
		}
		if got := c.job.Earliest(); !got.Equal(c.earliest) {
			t.Errorf("%+v: earliest %s, want %s", c.job, got, c.earliest)
		}
	}
}

// A job is told why a budget with room does not let it go, and that those ahead of it come first.
func TestWhyABudgetHolds(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_700_000_000, 0)
	for _, c := range []struct {
		reserves, ahead int64
		want            string
	}{
		{500, 0, "reserves 500, 400 are free; it may leave at 2023-11-14T22:13:21.000Z"},
		{300, 0, "reserves 300, 400 are free, but they are spread over the window; it may leave at 2023-11-14T22:13:21.000Z"},
		{300, 7, "reserves 300, 400 are free, but they are spread over the window; without those ahead it may leave at 2023-11-14T22:13:21.000Z"},
	} {
		job := shaper.JobInfo{State: shaper.StateQueued, Bucket: "b", Now: at, Position: c.ahead, Reserves: shaper.Units{shaper.UnitTokens: c.reserves},
			BudgetFrees: at.Add(time.Second),
			Budgets:     []shaper.BudgetUse{{Budget: admission.Rate{Count: 1000, Per: time.Minute, Unit: shaper.UnitTokens}, Charged: 600, Frees: at.Add(time.Second)}}}
		if got := job.Why(); !strings.Contains(got, `waits for the budget of 1000 tokens/m of bucket "b": `+c.want) {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
