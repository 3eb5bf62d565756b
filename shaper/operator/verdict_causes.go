package operator

import (
	"fmt"
	"slices"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/shaper"
)

// first returns the cause that is first in the order of codes; of two with the same code, the cause that lasts longer.
func first(causes ...*Blocked) *Blocked {
	var found *Blocked
	order := WhyCodes()
	for _, c := range causes {
		if c == nil {
			continue
		}
		if found == nil || slices.Index(order, c.Code) < slices.Index(order, found.Code) || c.Code == found.Code && c.Until.After(found.Until) {
			found = c
		}
	}
	return found
}

// at names the scope of a cause.
func at(scope shaper.Scope, name string, causes ...*Blocked) *Blocked {
	found := first(causes...)
	if found != nil {
		found.Scope, found.Name = scope, name
	}
	return found
}

// ofBucket returns what keeps all due jobs of the bucket; nil: nothing of the bucket or its pool does.
func (j *judgement) ofBucket() *Blocked {
	b := j.BucketInfo
	own := at(shaper.ScopeBucket, b.Name, j.ofPeople(), backsOff(b.Downstream, b.Now), j.unlessKept(usedUp(b.Quotas, b.Budgets, b.Now)), j.full(b.Requests, b.MaxInFlight))
	if p := b.Pool; p != nil {
		return first(own, at(shaper.ScopePool, p.Name, backsOff(p.Downstream, b.Now), j.unlessKept(usedUp(p.Quotas, p.Budgets, b.Now)), j.full(p.InFlight, p.MaxInFlight)))
	}
	return own
}

func (j *judgement) ofPeople() *Blocked {
	switch {
	case j.Pause != nil:
		detail := "by " + j.Pause.By
		if j.Pause.Reason != "" {
			detail += ": " + j.Pause.Reason
		}
		return &Blocked{Code: WhyPaused, Since: j.Pause.Since, detail: detail}
	case !j.fleet.IsServed(j.Name):
		return &Blocked{Code: WhyNoDispatcher}
	case j.Hours != nil && !j.Hours.Open:
		return &Blocked{Code: WhyClosed, Until: j.Hours.Opens}
	}
	return nil
}

// unlessKept drops a quota or a budget that is used up only for the next seconds, while deliveries keep the rate.
func (j *judgement) unlessKept(c *Blocked) *Blocked {
	if c != nil && j.keepsUp && c.Until.Sub(j.Now) <= settling {
		return nil
	}
	return c
}

// full returns the cause that the bound of requests in flight is reached and the rate is missed.
func (j *judgement) full(inFlight, most int64) *Blocked {
	if most <= 0 || inFlight < most || j.keepsUp {
		return nil
	}
	c := &Blocked{Code: WhyInFlight, detail: fmt.Sprintf("%s of %s", number(inFlight), number(most))}
	// A process that stands still or was killed has the others until their leases end; or asynq servers have them. Processes do not report by bucket,
	// so deliveries of other buckets may hide it.
	if busy := j.fleet.Busy(); 2*busy < inFlight {
		c.detail += fmt.Sprintf(", of which running processes deliver %s", number(busy))
		c.isLeft = true
	}
	return c
}

// backsOff is an open breaker or a hold.
func backsOff(d *shaper.Downstream, now time.Time) *Blocked {
	switch {
	case d == nil:
	case d.Breaker == shaper.BreakerHalfOpen, d.Breaker == shaper.BreakerOpen: // also where the next departure is the probe, which may fail
		return &Blocked{Code: WhyBreaker, Since: d.OpenSince, Until: d.HeldUntil, Reason: d.Reason}
	case d.HeldAt(now):
		return &Blocked{Code: WhyHeld, Since: d.ChangedAt, Until: d.HeldUntil, Reason: d.Reason}
	}
	return nil
}

// usedUp is the quota or the budget that holds longest.
func usedUp(quotas []shaper.QuotaUse, budgets []shaper.BudgetUse, now time.Time) *Blocked {
	if q := shaper.HoldingQuota(quotas, now); q != nil {
		return &Blocked{Code: WhyQuota, Until: q.Frees, detail: q.Quota.String()}
	}
	if u := shaper.HoldingBudget(budgets, now); u != nil {
		return &Blocked{Code: WhyBudget, Until: u.Frees, detail: fmt.Sprintf("%s, free in its window: %d", u.Budget, u.Free())}
	}
	return nil
}

// nth returns the text of one of some rates, by its number from 1; "" if there are not that many.
func nth(rates []admission.Rate, number int64) string {
	if number < 1 || number > int64(len(rates)) {
		return ""
	}
	return rates[number-1].String()
}

// doubled returns the rates with twice as much of one of them, by its number from 1.
func doubled(rates []admission.Rate, number int64) []admission.Rate {
	all := slices.Clone(rates)
	if number >= 1 && number <= int64(len(all)) {
		all[number-1].Count *= 2
	}
	return all
}

// ofFlow returns what keeps the due jobs of a flow: of the flow, its group, the bucket or its pool; nil: nothing of these does.
func (j *judgement) ofFlow(f *waitingFlow) *Blocked {
	causes := []*Blocked{j.stop}
	if f.own != nil {
		causes = append(causes, at(shaper.ScopeFlow, f.name, j.ofScope(f.own)...))
	}
	if f.ofGroup != nil {
		causes = append(causes, at(shaper.ScopeGroup, f.group, j.ofScope(f.ofGroup)...))
	}
	return first(causes...)
}

// ofScope returns what keeps the next departure of a flow or a group.
func (j *judgement) ofScope(s *waitingScope) []*Blocked {
	causes := []*Blocked{backsOff(s.downstream, j.Now)}
	add := func(holds bool, c Blocked) {
		if holds {
			causes = append(causes, &c)
		}
	}
	add(!s.paused.IsZero(), Blocked{Code: WhyPaused, Since: s.paused})
	if d := s.disabled; d != nil {
		add(true, Blocked{Code: WhyDisabled, Since: d.Since, Reason: d.Reason})
	}
	add(s.missing && s.disabled == nil, Blocked{Code: WhyMissing})
	add(s.quotaFrees.After(j.Now), Blocked{Code: WhyQuota, Until: s.quotaFrees, detail: nth(s.quotas, s.holdingQuota)})
	add(s.budgetFrees.After(j.Now), Blocked{Code: WhyBudget, Until: s.budgetFrees, detail: nth(s.budgets, s.holdingBudget)})
	add(s.maxInFlight > 0 && s.inFlight >= s.maxInFlight, Blocked{Code: WhyInFlight, detail: fmt.Sprintf("%s of %s", number(s.inFlight), number(s.maxInFlight))})
	if s.rateFrees.After(j.Now) {
		add(true, j.paced(s))
	}
	return causes
}

// paced returns the cause that the rate of a flow or a group holds it back.
func (j *judgement) paced(s *waitingScope) Blocked {
	if s.downstream.Slowed() {
		return Blocked{Code: WhyAdaptiveRate, Since: s.downstream.ChangedAt, Reason: s.downstream.Reason, detail: fmt.Sprintf("slowed to %.3g/s", s.downstream.Rate.PerSecond())}
	}
	return Blocked{Code: WhyRate, detail: s.rate.String()}
}

// ofRest returns what keeps due jobs that nothing of a scope holds back: they wait for their turn, or the bucket misses its rate.
func (j *judgement) ofRest(rate admission.Rate) Blocked {
	c := Blocked{Scope: shaper.ScopeBucket, Name: j.Name}
	permits := j.fleet.Permits(j.Name)
	fault, isAll := j.fleet.HostFault(j.Name)
	downstream, scope, name := j.Downstream, shaper.ScopeBucket, j.Name
	if p := j.Pool; !downstream.Slowed() && p != nil && p.Downstream.Slowed() {
		downstream, scope, name = p.Downstream, shaper.ScopePool, p.Name
	}
	switch {
	case isAll && fault != "":
		c.Code, c.detail = WhyHostFault, fault
	case j.keepsUp:
		c.Code, c.detail = WhyRate, rate.String()
	case downstream.Slowed():
		c = Blocked{Code: WhyAdaptiveRate, Scope: scope, Name: name, Since: downstream.ChangedAt, Reason: downstream.Reason, detail: fmt.Sprintf("slowed to %.3g/s", downstream.Rate.PerSecond())}
	case j.attemptsFail():
		c.Code, c.Reason = WhyFailing, j.progress.Reason
	case permits.HoldBack():
		c.Code, c.detail = WhyLate, permits.String()
	case j.poolIsBusy(rate):
		c = Blocked{Code: WhyRate, Scope: shaper.ScopePool, Name: j.Pool.Name, detail: j.Pool.Rate.String()}
	case j.busy < 2*settling || j.isFirst() && j.busy < j.patience() || j.asked > 0 && j.fleet.Rate(j.Name) >= enough*j.asked:
		c.Code = WhyStarting
	default:
		c.Code = WhySlow
	}
	return c
}

// poolIsBusy reports whether the pool lets the bucket have less than its rate: it is slower, or others share it, and it has sent something lately.
func (j *judgement) poolIsBusy(rate admission.Rate) bool {
	p := j.Pool
	if p == nil || p.Rate.IsZero() || p.LastSlot.IsZero() {
		return false
	}
	interval := time.Duration(float64(time.Second) / p.Rate.PerSecond())
	isSlower, isShared := p.Rate.PerSecond() < rate.PerSecond(), p.InFlight > j.Requests
	return (isSlower || isShared) && j.Now.Sub(p.LastSlot) < 2*interval+time.Second
}

// restOf is ofRest for one flow: if the bucket misses its rate and nothing explains it, the cause is the rate of the flow or its group.
func (j *judgement) restOf(f *waitingFlow) Blocked {
	if j.rest.Code != WhySlow && j.rest.Code != WhyStarting {
		return j.rest
	}
	for _, s := range []*waitingScope{f.own, f.ofGroup} {
		if s == nil || s.rate.IsZero() && !s.downstream.Slowed() {
			continue
		}
		c := j.paced(s)
		c.Scope, c.Name = shaper.ScopeFlow, f.name
		if s == f.ofGroup {
			c.Scope, c.Name = shaper.ScopeGroup, f.group
		}
		return c
	}
	return j.rest
}

// action returns the command that ends a cause, or shows what is to be repaired.
func (j *judgement) action(c *Blocked) []string {
	bucket := j.Name
	one := func(verb string, more ...string) []string { return j.commandOn(c, verb, more...) }
	switch c.Code {
	case WhyPaused:
		return one("resume")
	case WhyNoDispatcher:
		return []string{"run"}
	case WhyDisabled:
		return one("enable")
	case WhyMissing:
		return one("set", "--weight=1")
	case WhyClosed:
		if c.Until.IsZero() {
			return []string{"bucket", "drain", bucket, "--until-empty"}
		}
	case WhyAdaptiveRate:
		return j.release(c)
	case WhyQuota: // quotas of a bucket and a pool are in the configuration alone
		if s := j.scopeOf(c); s != nil && s.holdingQuota > 0 {
			return one("set", "--quotas="+shaper.Quotas(doubled(s.quotas, s.holdingQuota)).String())
		}
	case WhyBudget:
		if s := j.scopeOf(c); s != nil && s.holdingBudget > 0 {
			return one("set", "--budgets="+shaper.Budgets(doubled(s.budgets, s.holdingBudget)).String())
		}
	case WhyInFlight:
		if c.isLeft {
			return []string{"job", "list", bucket, "--state=in_flight"}
		}
		return one("set", fmt.Sprintf("--max-in-flight=%d", 2*j.boundOf(c)))
	case WhyHostFault, WhySlow:
		return []string{"fleet"}
	case WhyLate:
		return []string{"doctor"}
	case WhyFailing:
		words := []string{"job", "list", bucket, "--state=later"}
		if c.Scope == shaper.ScopeFlow && c.Flows == 1 {
			words = append(words, "--flow="+c.Name)
		}
		return words
	default:
	}
	return nil
}

// release returns the command that ends a hold, an open breaker or an adaptive rate; nil if the next hold would follow.
func (j *judgement) release(c *Blocked) []string {
	switch {
	case c.Reason == shaper.ReasonMoves:
		return nil
	case c.Scope == shaper.ScopeFlow && c.Flows > 1:
		return []string{"bucket", "release", j.Name, "--all-flows"}
	}
	return j.commandOn(c, "release")
}

// afterRepair returns the command for jobs that wait for another attempt or a probe, once their receiver is repaired.
func (j *judgement) afterRepair(c *Blocked) []string {
	switch {
	case c.Code == WhyBreaker || c.Code == WhyHeld:
		return j.release(c)
	case c.Code != WhyFailing || c.Until.IsZero(): // what is due already needs no command
		return nil
	case c.Scope != shaper.ScopeFlow || c.Flows > 1:
		return []string{"job", "retry", j.Name, "--all"}
	case j.HasGroups:
		return []string{"job", "retry", j.Name, "--group=" + c.Group, "--flow=" + c.Name}
	}
	return []string{"job", "retry", j.Name, "--flow=" + c.Name}
}

// commandOn returns a command on the scope of a cause.
func (j *judgement) commandOn(c *Blocked, verb string, more ...string) []string {
	var words []string
	switch {
	case c.Scope == shaper.ScopeBucket || c.Scope == shaper.ScopePool:
		words = []string{string(c.Scope), verb, c.Name}
	case c.Name == "" && c.Flows > 1:
		return []string{"flow", "list", j.Name}
	default:
		words = append([]string{string(c.Scope), verb}, more...)
		more = nil
		if c.Scope == shaper.ScopeFlow && j.HasGroups {
			words = append(words, "--group="+c.Group)
		}
		words = append(words, j.Name, "--", c.Name)
		if c.Name != "" && c.Name[0] != '-' {
			words = slices.Delete(words, len(words)-2, len(words)-1)
		}
	}
	return append(words, more...)
}

// boundOf returns the bound of requests in flight of the scope of a cause.
func (j *judgement) boundOf(c *Blocked) int64 {
	switch {
	case c.Scope == shaper.ScopeBucket:
		return j.MaxInFlight
	case c.Scope == shaper.ScopePool && j.Pool != nil:
		return j.Pool.MaxInFlight
	}
	if s := j.scopeOf(c); s != nil {
		return s.maxInFlight
	}
	return 1
}

// scopeOf returns the flow or group of a cause; nil for another scope, and for a cause that several flows share.
func (j *judgement) scopeOf(c *Blocked) *waitingScope {
	for i := range j.seen.flows {
		f := &j.seen.flows[i]
		switch {
		case c.Scope == shaper.ScopeFlow && f.own != nil && f.name == c.Name && f.group == c.Group && c.Flows <= 1:
			return f.own
		case c.Scope == shaper.ScopeGroup && f.ofGroup != nil && f.group == c.Name:
			return f.ofGroup
		}
	}
	return nil
}

// attemptsFail reports whether enough attempts of the last minute failed to miss the rate.
func (j *judgement) attemptsFail() bool {
	return j.progress.Unsuccessful > 0 && float64(j.progress.Unsuccessful) >= failsMuch*float64(j.progress.Attempts)
}
