package shaper

import (
	"fmt"
	"strings"
	"time"
)

// BlockedBy returns everything that holds the job back; nil if it does not wait.
func (j *JobInfo) BlockedBy() []Blocker {
	if j.State != StateQueued && j.State != StateScheduled && j.State != StateRetrying {
		return nil
	}
	var by []Blocker
	scopes := j.scopes()
	for i := range scopes {
		by = append(by, scopes[i].stopped()...)
	}
	by = append(by, Blocker{ScopeBucket, j.turn()})
	if j.State == StateQueued && j.Returned >= returnedOften {
		by = append(by, Blocker{ScopeBucket, BlockReturned})
	}
	for i := range scopes {
		by = append(by, scopes[i].used()...)
	}
	for _, s := range [...]Scope{ScopeBucket, ScopeFlow, ScopePool} {
		by = append(by, j.scope(s).slowed(j.Now)...)
	}
	return by
}

// returnedOften is how many returned permits of a job count as a reason. A stop of a dispatcher returns one.
const returnedOften = 3

// turn returns what the job waits for in its own queue.
func (j *JobInfo) turn() BlockReason {
	switch {
	case j.State == StateQueued && j.Position > 0:
		return BlockAhead
	case j.State == StateQueued:
		return BlockPace
	case j.State == StateScheduled:
		return BlockNotBefore
	case j.isParked():
		return BlockLastChance
	}
	return BlockBackoff
}

// jobScope is the state of one of a job's scopes: its bucket, group, flow or pool.
type jobScope struct {
	Scope
	text                  string // for people
	pause                 *Pause
	closed                bool
	disabled, missing     bool
	inFlight, maxInFlight int64
	rateFrees             time.Time // when its rate permits the departure; zero: now, and for a bucket
	quotaFrees            time.Time // when its quotas permit the departure; zero: now, or another scope's quotas hold longer
	quotas                []QuotaUse
	budgetFrees           time.Time // when its budgets permit the departure; zero: now
	budgets               []BudgetUse
	downstream            *Downstream
	waits                 bool // its rate permits the departure only later
}

// scopes returns the scopes of the job, in the order of the report. The quotas of the bucket and the flow are a single blocker, of the scope that
// holds longer.
func (j *JobInfo) scopes() []jobScope {
	bucket := jobScope{
		Scope: ScopeBucket, text: fmt.Sprintf("bucket %q", j.Bucket), pause: j.Pause, closed: j.Closed, inFlight: j.InFlight, maxInFlight: j.MaxInFlight,
		quotaFrees: j.QuotaFrees, quotas: j.Quotas, budgetFrees: j.BudgetFrees, budgets: j.Budgets, downstream: j.Downstream, waits: j.NextSlot.After(j.Now),
	}
	part := func(scope Scope, name string, of *JobFlow) jobScope {
		return jobScope{
			Scope: scope, text: fmt.Sprintf("%s %q", scope, name), pause: of.Pause, disabled: of.Disabled != nil, missing: of.Missing, inFlight: of.InFlight, maxInFlight: of.MaxInFlight,
			rateFrees: of.RateFrees, quotaFrees: of.QuotaFrees, quotas: of.Quotas, budgetFrees: of.BudgetFrees, budgets: of.Budgets, downstream: of.Downstream, waits: !of.RateFrees.IsZero(),
		}
	}
	all := []jobScope{bucket}
	if j.OfGroup != nil {
		all = append(all, part(ScopeGroup, j.Group, j.OfGroup))
	}
	if f := j.OfFlow; f != nil {
		flow := part(ScopeFlow, j.Flow, f)
		if f.QuotaFrees.After(j.QuotaFrees) {
			all[0].quotaFrees = time.Time{}
		} else {
			flow.quotaFrees = time.Time{}
		}
		all = append(all, flow)
	}
	if p := j.OfPool; p != nil {
		all = append(all, jobScope{
			Scope: ScopePool, text: fmt.Sprintf("pool %q", p.Name), inFlight: p.InFlight, maxInFlight: p.MaxInFlight,
			rateFrees: p.RateFrees, quotaFrees: p.QuotaFrees, quotas: p.Quotas, budgetFrees: p.BudgetFrees, budgets: p.Budgets, downstream: p.Downstream, waits: !p.RateFrees.IsZero(),
		})
	}
	return all
}

// scope returns one of the job's scopes; if the job lacks it, a scope that holds nothing back.
func (j *JobInfo) scope(scope Scope) *jobScope {
	for _, s := range j.scopes() {
		if s.Scope == scope {
			return &s
		}
	}
	return &jobScope{Scope: scope}
}

// appendIf appends a reason of the scope if it holds.
func (s *jobScope) appendIf(by []Blocker, reason BlockReason, holds bool) []Blocker {
	if holds {
		by = append(by, Blocker{s.Scope, reason})
	}
	return by
}

// stopped returns why the scope sends nothing at all.
func (s *jobScope) stopped() (by []Blocker) {
	by = s.appendIf(by, BlockPaused, s.pause != nil)
	by = s.appendIf(by, BlockClosed, s.closed)
	by = s.appendIf(by, BlockDisabled, s.disabled)
	return s.appendIf(by, BlockMissing, s.missing)
}

// used returns the bounds of the scope that are used up.
func (s *jobScope) used() (by []Blocker) {
	by = s.appendIf(by, BlockMaxInFlight, s.maxInFlight > 0 && s.inFlight >= s.maxInFlight)
	by = s.appendIf(by, BlockPace, !s.rateFrees.IsZero())
	by = s.appendIf(by, BlockQuota, !s.quotaFrees.IsZero())
	return s.appendIf(by, BlockBudget, !s.budgetFrees.IsZero())
}

// slowed returns how the downstream holds the job back now.
func (s *jobScope) slowed(now time.Time) (by []Blocker) {
	d := s.downstream
	if d == nil {
		return nil
	}
	opened := d.Breaker != BreakerClosed // even if the next departure is the probe, which may fail
	by = s.appendIf(by, BlockBreakerOpen, opened)
	by = s.appendIf(by, BlockHeld, !opened && d.HeldAt(now))
	return s.appendIf(by, BlockAdaptivePace, s.waits && d.Slowed())
}

// quotaFrees returns when the quotas of the bucket and the flow permit the departure; zero: now.
func (j *JobInfo) quotaFrees() time.Time {
	if j.OfFlow != nil {
		return latest(j.QuotaFrees, j.OfFlow.QuotaFrees)
	}
	return j.QuotaFrees
}

// isParked reports whether the job is parked for its last chance. A retry has no crashes, as its last delivery had an outcome.
func (j *JobInfo) isParked() bool { return j.State == StateRetrying && j.Crashes >= MaxCrashes-1 }

func isPaused(of *JobFlow) bool   { return of != nil && of.Pause != nil }
func isDisabled(of *JobFlow) bool { return of != nil && of.Disabled != nil }
func isMissing(of *JobFlow) bool  { return of != nil && of.Missing }

// isStopped reports whether the job's bucket, group or flow sends nothing until an operator acts.
func (j *JobInfo) isStopped() bool {
	return j.Pause != nil || isPaused(j.OfGroup) || isPaused(j.OfFlow) || isDisabled(j.OfFlow) || isMissing(j.OfFlow) || j.Closed && j.Opens.IsZero()
}

// Earliest returns the earliest instant at which the job may depart, as far as known. It is zero while its bucket, group or flow is paused, and if
// the job does not wait.
func (j *JobInfo) Earliest() time.Time {
	switch {
	case j.isStopped():
		return time.Time{}
	case j.State == StateQueued:
		return j.ETA
	case j.State == StateScheduled || j.State == StateRetrying:
		earliest := latest(latest(latest(j.NextSlot, j.Due), j.Opens), j.quotaFrees())
		for _, s := range j.scopes() {
			earliest = latest(earliest, s.budgetFrees)
		}
		if j.OfGroup != nil {
			earliest = latest(earliest, j.OfGroup.QuotaFrees)
		}
		if j.OfPool != nil {
			earliest = latest(latest(earliest, j.OfPool.RateFrees), j.OfPool.QuotaFrees)
		}
		for _, s := range j.scopes() {
			if s.downstream != nil {
				earliest = latest(earliest, s.downstream.HeldUntil)
			}
		}
		return earliest
	}
	return time.Time{}
}

// Why explains in a sentence why the job is not in flight yet.
func (j *JobInfo) Why() string {
	switch j.State {
	case StateQueued, StateScheduled, StateRetrying:
		parts := make([]string, 0, 3)
		for _, by := range j.BlockedBy() {
			parts = append(parts, j.why(by))
		}
		return strings.Join(parts, "; ")
	case StateInFlight:
		return "a dispatcher has it"
	case StateDead:
		return "it will not be tried again: " + j.Last.Cause
	default:
		return ""
	}
}

func whyPaused(p *Pause, what string) string {
	text := fmt.Sprintf("%s is paused since %s by %s", what, p.Since.UTC().Format(time.RFC3339), p.By)
	if p.Reason != "" {
		text += " (" + p.Reason + ")"
	}
	return text
}

func (j *JobInfo) why(by Blocker) string {
	s := j.scope(by.Scope)
	switch by.Reason {
	case BlockPaused:
		return whyPaused(s.pause, s.text)
	case BlockClosed:
		if j.Opens.IsZero() {
			return s.text + " is closed: it leaks during a drain only, which an operator starts"
		}
		return fmt.Sprintf("%s is closed: it opens at %s", s.text, j.Opens.UTC().Format(time.RFC3339))
	case BlockDisabled:
		if j.OfFlow.Keeps {
			return fmt.Sprintf("%s is %s: the job is kept, and departs once `dispatcher flow enable` has enabled the flow", s.text, j.OfFlow.Disabled)
		}
		return fmt.Sprintf("%s is %s: the job becomes a dead letter, to be redriven once the flow is enabled", s.text, j.OfFlow.Disabled)
	case BlockMissing:
		return s.text + " has no settings of its own, which flow.must_exist asks for: the job waits until `dispatcher flow set` gives it one"
	case BlockMaxInFlight:
		of := " of " + s.text
		if s.Scope == ScopeBucket {
			of = ""
		}
		return fmt.Sprintf("%d of at most %d%s are in flight: one of them has to end first", s.inFlight, s.maxInFlight, of)
	case BlockQuota:
		return fmt.Sprintf("as many have left as %s allows %s; it is free again at %s", j.quotaText(s.quotas), s.text, clockText(s.quotaFrees))
	case BlockBudget:
		return j.budgetText(s)
	case BlockHeld, BlockBreakerOpen:
		return s.text + ": " + s.downstream.heldText(j.Now)
	case BlockAdaptivePace:
		return s.text + ": " + s.downstream.slowedText()
	case BlockPace:
		switch {
		case s.Scope == ScopeBucket:
		case s.pause != nil:
			return fmt.Sprintf("at its own pace %s could send again at %s", s.text, clockText(s.rateFrees))
		default:
			return fmt.Sprintf("%s may send again at %s, at its own pace", s.text, clockText(s.rateFrees))
		}
	}
	return j.whyTurn(by.Reason)
}

// whyTurn explains what the job waits for in its own queue.
func (j *JobInfo) whyTurn(reason BlockReason) string {
	switch reason {
	case BlockAhead:
		if j.OfFlow != nil {
			return fmt.Sprintf("%d ahead of it leave flow %q of bucket %q first, in its turns%s", j.Position, j.Flow, j.Bucket, j.beyondHours())
		}
		return fmt.Sprintf("%d ahead of it leave bucket %q first, at its pace%s", j.Position, j.Bucket, j.beyondHours())
	case BlockPace:
		if j.OfFlow != nil {
			return fmt.Sprintf("it is the next of flow %q, which waits for its turn in bucket %q", j.Flow, j.Bucket)
		}
		return fmt.Sprintf("it is the next to leave bucket %q, at its pace", j.Bucket)
	case BlockReturned:
		return fmt.Sprintf("%d of its permits came back unused, as it was not ready to depart in time: `dispatcher bucket why %s` names the cause", j.Returned, j.Bucket)
	case BlockNotBefore:
		return "its time has not come"
	case BlockBackoff:
		return fmt.Sprintf("attempt %d failed (%s); it waits for the next one", j.Attempts, j.Last.Reason)
	case BlockLastChance:
		return fmt.Sprintf("the process that delivered it died %d times in a row; it is on its last chance, and a process takes one such job at a time", j.Crashes)
	}
	return ""
}

// beyondHours explains why no time is known of a job that nothing stops: the stored timetable of its bucket ends before its turn.
func (j *JobInfo) beyondHours() string {
	if !j.ETA.IsZero() || j.isStopped() {
		return ""
	}
	return ": no time is known, as the hours of the bucket may end before its turn"
}

// quotaText names the quota that holds longest.
func (j *JobInfo) quotaText(uses []QuotaUse) string {
	if held := HoldingQuota(uses, j.Now); held != nil {
		return fmt.Sprintf("its quota of %s", held.Quota)
	}
	return "a quota"
}

// budgetText explains for which budget the job waits.
func (j *JobInfo) budgetText(s *jobScope) string {
	held := HoldingBudget(s.budgets, j.Now)
	if held == nil {
		return "waits for a budget of " + s.text
	}
	text := fmt.Sprintf("waits for the budget of %s of %s", held.Budget, s.text)
	reserves, named := j.Reserves.Of(held.Budget.Unit)
	if named {
		text += fmt.Sprintf(": reserves %d", reserves)
	} else {
		text += ": reserves what the bucket says"
	}
	text += fmt.Sprintf(", %d are free", held.Free())
	if named && reserves <= held.Free() {
		text += ", but they are spread over the window"
	}
	if j.Position > 0 { // the jobs ahead of it use the budget too
		return text + "; without those ahead it may leave at " + clockText(held.Frees)
	}
	return text + "; it may leave at " + clockText(held.Frees)
}
