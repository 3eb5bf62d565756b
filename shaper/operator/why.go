package operator

import (
	"fmt"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// WhyCode is a word for why a bucket sends nothing, or that it sends.
type WhyCode string

// The words, in the order in which they are looked for: the first that holds is told.
const (
	WhyEmpty        WhyCode = "empty"         // nothing waits
	WhyPaused       WhyCode = "paused"        // by an operator
	WhyNoDispatcher WhyCode = "no-dispatcher" // no process tells that it delivers jobs of the bucket
	WhyClosed       WhyCode = "closed"        // it is outside of its hours
	WhyBreaker      WhyCode = "breaker"       // its circuit breaker is open, or a probe is on its way
	WhyHeld         WhyCode = "held"          // its downstream has asked for a wait
	WhyQuota        WhyCode = "quota"         // a quota is used up
	WhyBudget       WhyCode = "budget"        // a budget has no room for the next job
	WhyPool         WhyCode = "pool"          // its pool is held, or a quota, a budget or the bound of requests in flight of that is used up
	WhyInFlight     WhyCode = "in-flight"     // as many requests are in flight as may be
	WhyFlows        WhyCode = "flows"         // none of its flows may send: they are paused, disabled or have as much in flight as may be
	WhyHostFault    WhyCode = "host-fault"    // no host of its dispatchers can connect to receivers
	WhyLater        WhyCode = "later"         // all that waits is for later: delayed jobs, and those that wait for their next attempt
	WhyLate         WhyCode = "late"          // many permits come back unused
	WhySends        WhyCode = "sends"         // nothing holds it back
)

// Why is why a bucket sends nothing.
type Why struct {
	Code     WhyCode
	Sentence string    // for people
	Until    time.Time // when that may end, by the clock of Redis; zero: not known, or not before somebody acts
}

// Why says why the bucket sends nothing, or less than its rate. isServed is whether a process delivers its jobs, and permits is what became of
// its permits lately: see IsServed and Permits of [fleet.Snapshot].
//
// [fleet.Snapshot]: https://pkg.go.dev/github.com/tundish-io/tundish/shaper/fleet#Snapshot
func (b *BucketInfo) Why(isServed bool, permits shaper.LatePermits) Why {
	for _, look := range []func(isServed bool) (Why, bool){b.ofWork, b.ofPeople, b.ofDownstream, b.ofCounts, b.ofFlows} {
		if why, holds := look(isServed); holds {
			if why.Code == WhyQuota && permits.HoldBack() { // a permit that came back counts for the quota
				why.Sentence += "; " + permits.String()
			}
			return why
		}
	}
	late := permits.String()
	switch {
	case permits.HoldBack():
		return Why{Code: WhyLate, Sentence: late}
	case late != "":
		return Why{Code: WhySends, Sentence: "jobs leave about at its rate; " + late}
	}
	return Why{Code: WhySends, Sentence: "nothing holds it back: jobs leave at its rate"}
}

// OnHost adds a fault of the hosts of dispatchers: see [fleet.Snapshot.HostFault]. It is told where nothing else holds the bucket back.
//
// [fleet.Snapshot.HostFault]: https://pkg.go.dev/github.com/tundish-io/tundish/shaper/fleet#Snapshot
func (w Why) OnHost(fault string, isAll bool) Why {
	switch {
	case fault == "" || w.Code != WhySends && w.Code != WhyLater && w.Code != WhyFlows:
		return w
	case isAll:
		return Why{Code: WhyHostFault, Sentence: "no dispatcher can connect to its receivers, so jobs wait and spend no attempt: " + fault}
	}
	w.Sentence += "; not all dispatchers can connect to its receivers: " + fault
	return w
}

func (b *BucketInfo) ofWork(bool) (Why, bool) {
	if b.Unfinished-b.InFlight+b.Scheduled > 0 {
		return Why{}, false
	}
	sentence := "nothing waits"
	if b.Dead > 0 {
		sentence = fmt.Sprintf("nothing waits (dead letters: %d; `dispatcher dead list %s` says why)", b.Dead, b.Name)
	}
	if used, holds := usedUp(b.Quotas, b.Budgets, b.Now); holds { // a client at the door was refused, perhaps, and asks why
		sentence += fmt.Sprintf("; %s, until %s", used.Sentence, used.Until.UTC().Format(time.RFC3339))
	}
	return Why{Code: WhyEmpty, Sentence: sentence}, true
}

func (b *BucketInfo) ofPeople(isServed bool) (Why, bool) {
	switch {
	case b.Pause != nil:
		sentence := fmt.Sprintf("%s paused it at %s", b.Pause.By, b.Pause.Since.UTC().Format(time.RFC3339))
		if b.Pause.Reason != "" {
			sentence += ": " + b.Pause.Reason
		}
		return Why{Code: WhyPaused, Sentence: sentence}, true
	case !isServed:
		return Why{Code: WhyNoDispatcher, Sentence: "no process tells that it delivers its jobs: start `dispatcher run`; those of versions before tell nothing"}, true
	case b.Hours != nil && !b.Hours.Open:
		return Why{WhyClosed, "it is outside of its hours", b.Hours.Opens}, true
	}
	return Why{}, false
}

func (b *BucketInfo) ofDownstream(bool) (Why, bool) {
	if why, holds := backsOff(b.Downstream, b.Now); holds {
		return why, true
	}
	if p := b.Pool; p != nil {
		if why, holds := backsOff(p.Downstream, b.Now); holds {
			return Why{WhyPool, fmt.Sprintf("pool %q: %s", p.Name, why.Sentence), why.Until}, true
		}
	}
	return Why{}, false
}

// backsOff tells of an open breaker or a hold.
func backsOff(d *shaper.Downstream, now time.Time) (Why, bool) {
	switch {
	case d == nil:
	case d.Breaker == shaper.BreakerHalfOpen, d.Breaker == shaper.BreakerOpen && d.HeldAt(now):
		return Why{WhyBreaker, d.Text(now), d.HeldUntil}, true
	case d.Breaker == shaper.BreakerClosed && d.HeldAt(now):
		return Why{WhyHeld, d.Text(now), d.HeldUntil}, true
	}
	return Why{}, false
}

func (b *BucketInfo) ofCounts(bool) (Why, bool) {
	if why, holds := usedUp(b.Quotas, b.Budgets, b.Now); holds {
		return why, true
	}
	if p := b.Pool; p != nil {
		why, holds := usedUp(p.Quotas, p.Budgets, b.Now)
		if !holds && p.MaxInFlight > 0 && p.InFlight >= p.MaxInFlight {
			why, holds = Why{Sentence: fmt.Sprintf("%d requests are in flight, of at most %d", p.InFlight, p.MaxInFlight)}, true
		}
		if holds {
			return Why{WhyPool, fmt.Sprintf("pool %q: %s", p.Name, why.Sentence), why.Until}, true
		}
	}
	if b.MaxInFlight > 0 && b.Requests >= b.MaxInFlight {
		return Why{Code: WhyInFlight, Sentence: fmt.Sprintf("%d requests are in flight, of at most %d", b.Requests, b.MaxInFlight)}, true
	}
	return Why{}, false
}

// usedUp tells of the quota or the budget that holds longest.
func usedUp(quotas []shaper.QuotaUse, budgets []shaper.BudgetUse, now time.Time) (Why, bool) {
	if q := shaper.HoldingQuota(quotas, now); q != nil {
		return Why{WhyQuota, fmt.Sprintf("the quota of %s is used up", q.Quota), q.Frees}, true
	}
	if u := shaper.HoldingBudget(budgets, now); u != nil {
		return Why{WhyBudget, fmt.Sprintf("the budget of %s makes the next job wait (free in its window: %d)", u.Budget, u.Free()), u.Frees}, true
	}
	return Why{}, false
}

func (b *BucketInfo) ofFlows(bool) (Why, bool) {
	switch {
	case b.HasGroups && b.GroupsWait == 0, b.HasFlows && !b.HasGroups && b.FlowsWait == 0:
		return Why{Code: WhyFlows, Sentence: fmt.Sprintf("none of its flows may send: they are paused, disabled or have as much in flight as may be (disabled: %d)", b.FlowsDisabled)}, true
	case !b.HasFlows && b.Waiting == 0 && b.NextDue.After(b.Now):
		return Why{WhyLater, fmt.Sprintf("all that waits is for later: %d sent with a delay, %d for another attempt", b.Scheduled, max(b.Later-b.Scheduled, 0)), b.NextDue}, true
	}
	return Why{}, false
}
