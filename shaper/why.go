package shaper

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// BlockedBy is something that keeps a job from leaving.
type BlockedBy string

// What may keep a job from leaving. Several may at once.
const (
	BlockedByPause       BlockedBy = "paused"        // its bucket is
	BlockedByJobsAhead   BlockedBy = "ahead"         // others leave first, of its flow
	BlockedByPace        BlockedBy = "pace"          // it is next, of its flow, and waits for its slot
	BlockedByTime        BlockedBy = "not-before"    // its time has not come
	BlockedByBackoff     BlockedBy = "backoff"       // an attempt failed, and the next has not come
	BlockedByMaxInFlight BlockedBy = "max-in-flight" // as many as may are on their way
	BlockedByQuota       BlockedBy = "quota"         // as many as may have left in a window of its bucket or its flow

	BlockedByFlowPause       BlockedBy = "flow-paused"        // its flow is
	BlockedByFlowDisabled    BlockedBy = "flow-disabled"      // its flow is: it becomes a dead letter
	BlockedByFlowPace        BlockedBy = "flow-pace"          // the rate of its flow lets it leave later
	BlockedByFlowMaxInFlight BlockedBy = "flow-max-in-flight" // as many of its flow as may are on their way

	BlockedByGroupPause       BlockedBy = "group-paused"        // its group is
	BlockedByGroupPace        BlockedBy = "group-pace"          // the rate of its group lets it leave later
	BlockedByGroupQuota       BlockedBy = "group-quota"         // as many of its group as may have left in a window
	BlockedByGroupMaxInFlight BlockedBy = "group-max-in-flight" // as many of its group as may are on their way

	BlockedByPoolPace        BlockedBy = "pool-pace"          // the rate of its bucket's pool lets it leave later
	BlockedByPoolQuota       BlockedBy = "pool-quota"         // as many as may have left the pool in a window
	BlockedByPoolMaxInFlight BlockedBy = "pool-max-in-flight" // as many of the pool as may are on their way

	BlockedByLastChance BlockedBy = "last-chance" // it goes alone, and another one does now

	BlockedByHold         BlockedBy = "held"          // its bucket's downstream asked for nothing until a time
	BlockedByBreaker      BlockedBy = "breaker-open"  // the circuit breaker of its bucket is open, or half-open
	BlockedByAdaptivePace BlockedBy = "adaptive-pace" // its bucket's downstream asks for less than its rate

	BlockedByFlowHold         BlockedBy = "flow-held" // the same of its flow
	BlockedByFlowBreaker      BlockedBy = "flow-breaker-open"
	BlockedByFlowAdaptivePace BlockedBy = "flow-adaptive-pace"

	BlockedByPoolHold         BlockedBy = "pool-held" // the same of its bucket's pool
	BlockedByPoolBreaker      BlockedBy = "pool-breaker-open"
	BlockedByPoolAdaptivePace BlockedBy = "pool-adaptive-pace"

	BlockedByHours BlockedBy = "closed" // its bucket is, outside of its drain windows
)

// BlockedBy lists all that keeps the job from leaving; nothing if it does not wait.
func (j *JobInfo) BlockedBy() []BlockedBy {
	var by []BlockedBy
	if j.State != StateQueued && j.State != StateScheduled && j.State != StateRetrying {
		return nil
	}
	if j.Pause != nil {
		by = append(by, BlockedByPause)
	}
	if j.Closed {
		by = append(by, BlockedByHours)
	}
	if isPaused(j.OfGroup) {
		by = append(by, BlockedByGroupPause)
	}
	if isPaused(j.OfFlow) {
		by = append(by, BlockedByFlowPause)
	}
	if isDisabled(j.OfFlow) {
		by = append(by, BlockedByFlowDisabled)
	}
	switch {
	case j.State == StateQueued && j.Position > 0:
		by = append(by, BlockedByJobsAhead)
	case j.State == StateQueued:
		by = append(by, BlockedByPace)
	case j.State == StateScheduled:
		by = append(by, BlockedByTime)
	case j.setAside():
		by = append(by, BlockedByLastChance)
	default:
		by = append(by, BlockedByBackoff)
	}
	if j.MaxInFlight > 0 && j.InFlight >= j.MaxInFlight {
		by = append(by, BlockedByMaxInFlight)
	}
	if g := j.OfGroup; g != nil {
		if g.MaxInFlight > 0 && g.InFlight >= g.MaxInFlight {
			by = append(by, BlockedByGroupMaxInFlight)
		}
		if !g.RateFrees.IsZero() {
			by = append(by, BlockedByGroupPace)
		}
		if !g.QuotaFrees.IsZero() {
			by = append(by, BlockedByGroupQuota)
		}
	}
	if f := j.OfFlow; f != nil {
		if f.MaxInFlight > 0 && f.InFlight >= f.MaxInFlight {
			by = append(by, BlockedByFlowMaxInFlight)
		}
		if !f.RateFrees.IsZero() {
			by = append(by, BlockedByFlowPace)
		}
	}
	if !j.quotaFrees().IsZero() {
		by = append(by, BlockedByQuota)
	}
	if p := j.OfPool; p != nil {
		if p.MaxInFlight > 0 && p.InFlight >= p.MaxInFlight {
			by = append(by, BlockedByPoolMaxInFlight)
		}
		if !p.RateFrees.IsZero() {
			by = append(by, BlockedByPoolPace)
		}
		if !p.QuotaFrees.IsZero() {
			by = append(by, BlockedByPoolQuota)
		}
	}
	for _, s := range j.scopes() {
		by = append(by, s.blocks(j.Now)...)
	}
	return by
}

// jobScope is a scope of a job, with what its downstream says.
type jobScope struct {
	*Downstream
	what                    string // for people
	waits                   bool   // its rate lets the job leave later than now
	hold, breaker, adaptive BlockedBy
}

// scopes are those of the job of which the downstream says something.
func (j *JobInfo) scopes() []jobScope {
	all := []jobScope{{j.Downstream, fmt.Sprintf("bucket %q", j.Bucket), j.NextSlot.After(j.Now), BlockedByHold, BlockedByBreaker, BlockedByAdaptivePace}}
	if f := j.OfFlow; f != nil {
		all = append(all, jobScope{f.Downstream, fmt.Sprintf("flow %q", j.Flow), !f.RateFrees.IsZero(), BlockedByFlowHold, BlockedByFlowBreaker, BlockedByFlowAdaptivePace})
	}
	if p := j.OfPool; p != nil {
		all = append(all, jobScope{p.Downstream, fmt.Sprintf("pool %q", p.Name), !p.RateFrees.IsZero(), BlockedByPoolHold, BlockedByPoolBreaker, BlockedByPoolAdaptivePace})
	}
	return slices.DeleteFunc(all, func(s jobScope) bool { return s.Downstream == nil })
}

// blocks lists how the downstream keeps the job from leaving now.
func (s *jobScope) blocks(now time.Time) []BlockedBy {
	var by []BlockedBy
	switch {
	case s.Breaker != BreakerClosed: // also when the next departure is the probe, which may fail
		by = append(by, s.breaker)
	case s.HeldAt(now):
		by = append(by, s.hold)
	}
	if s.waits && s.Slowed() {
		by = append(by, s.adaptive)
	}
	return by
}

// whyDownstream says why in a sentence; "" of what is none of the downstream's.
func (j *JobInfo) whyDownstream(by BlockedBy) string {
	for _, s := range j.scopes() {
		switch by {
		case s.hold, s.breaker:
			return s.what + ": " + s.heldText(j.Now)
		case s.adaptive:
			return s.what + ": " + s.slowedText()
		}
	}
	return ""
}

// quotaFrees is when the quotas of bucket and flow let the job leave; zero: at once.
func (j *JobInfo) quotaFrees() time.Time {
	if j.OfFlow != nil {
		return latest(j.QuotaFrees, j.OfFlow.QuotaFrees)
	}
	return j.QuotaFrees
}

// setAside reports whether claim has set the job aside: a retry has no crashes,
// as it had an outcome.
func (j *JobInfo) setAside() bool { return j.State == StateRetrying && j.Crashes >= MaxCrashes-1 }

func isPaused(of *JobFlow) bool   { return of != nil && of.Pause != nil }
func isDisabled(of *JobFlow) bool { return of != nil && of.Disabled != nil }

// Earliest is the earliest instant at which the job may depart, as far as that can be
// known; zero while its bucket, group or flow is paused, and if the job does not wait.
func (j *JobInfo) Earliest() time.Time {
	switch {
	case j.Pause != nil || isPaused(j.OfGroup) || isPaused(j.OfFlow) || isDisabled(j.OfFlow) || j.Closed && j.Opens.IsZero():
		return time.Time{}
	case j.State == StateQueued:
		return j.ETA
	case j.State == StateScheduled || j.State == StateRetrying:
		earliest := latest(latest(latest(j.NextSlot, j.Due), j.Opens), j.quotaFrees())
		if j.OfGroup != nil {
			earliest = latest(earliest, j.OfGroup.QuotaFrees)
		}
		if j.OfPool != nil {
			earliest = latest(latest(earliest, j.OfPool.RateFrees), j.OfPool.QuotaFrees)
		}
		for _, s := range j.scopes() {
			earliest = latest(earliest, s.HeldUntil)
		}
		return earliest
	}
	return time.Time{}
}

// Why says in a sentence why the job is not on its way yet.
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

func (j *JobInfo) why(by BlockedBy) string {
	switch by {
	case BlockedByGroupPause:
		return whyPaused(j.OfGroup.Pause, fmt.Sprintf("group %q", j.Group))
	case BlockedByGroupPace:
		return fmt.Sprintf("group %q may send again at %s, at its own pace", j.Group, clockText(j.OfGroup.RateFrees))
	case BlockedByGroupQuota:
		return fmt.Sprintf("as many have left as %s allows group %q; it is free again at %s", j.quotaText(j.OfGroup.Quotas), j.Group, clockText(j.OfGroup.QuotaFrees))
	case BlockedByGroupMaxInFlight:
		return fmt.Sprintf("%d of at most %d of group %q are in flight: one of them has to end first", j.OfGroup.InFlight, j.OfGroup.MaxInFlight, j.Group)
	case BlockedByPoolPace:
		return fmt.Sprintf("pool %q may send again at %s, at its own pace", j.OfPool.Name, clockText(j.OfPool.RateFrees))
	case BlockedByPoolQuota:
		return fmt.Sprintf("as many have left as %s allows pool %q; it is free again at %s", j.quotaText(j.OfPool.Quotas), j.OfPool.Name, clockText(j.OfPool.QuotaFrees))
	case BlockedByPoolMaxInFlight:
		return fmt.Sprintf("%d of at most %d of pool %q are in flight: one of them has to end first", j.OfPool.InFlight, j.OfPool.MaxInFlight, j.OfPool.Name)
	case BlockedByHours:
		if j.Opens.IsZero() {
			return fmt.Sprintf("bucket %q is closed: it leaks during a drain only, which an operator starts", j.Bucket)
		}
		return fmt.Sprintf("bucket %q is closed: it opens at %s", j.Bucket, j.Opens.UTC().Format(time.RFC3339))
	case BlockedByPause:
		return whyPaused(j.Pause, fmt.Sprintf("bucket %q", j.Bucket))
	case BlockedByFlowPause:
		return whyPaused(j.OfFlow.Pause, fmt.Sprintf("flow %q", j.Flow))
	case BlockedByFlowDisabled:
		return fmt.Sprintf("flow %q is %s: the job becomes a dead letter, to be redriven once the flow is enabled", j.Flow, j.OfFlow.Disabled)
	case BlockedByFlowPace:
		return fmt.Sprintf("flow %q may send again at %s, at its own pace", j.Flow, clockText(j.OfFlow.RateFrees))
	case BlockedByFlowMaxInFlight:
		return fmt.Sprintf("%d of at most %d of flow %q are in flight: one of them has to end first", j.OfFlow.InFlight, j.OfFlow.MaxInFlight, j.Flow)
	case BlockedByQuota:
		if f := j.OfFlow; f != nil && f.QuotaFrees.After(j.QuotaFrees) {
			return fmt.Sprintf("as many have left as %s allows flow %q; it is free again at %s", j.quotaText(f.Quotas), j.Flow, clockText(f.QuotaFrees))
		}
		return fmt.Sprintf("as many have left as %s allows bucket %q; it is free again at %s", j.quotaText(j.Quotas), j.Bucket, clockText(j.QuotaFrees))
	case BlockedByJobsAhead:
		if j.OfFlow != nil {
			return fmt.Sprintf("%d ahead of it leave flow %q of bucket %q first, in its turns", j.Position, j.Flow, j.Bucket)
		}
		return fmt.Sprintf("%d ahead of it leave bucket %q first, at its pace", j.Position, j.Bucket)
	case BlockedByPace:
		if j.OfFlow != nil {
			return fmt.Sprintf("it is the next of flow %q, which waits for its turn in bucket %q", j.Flow, j.Bucket)
		}
		return fmt.Sprintf("it is the next to leave bucket %q, at its pace", j.Bucket)
	case BlockedByTime:
		return "its time has not come"
	case BlockedByBackoff:
		return fmt.Sprintf("attempt %d failed (%s); it waits for the next one", j.Attempts, j.Last.Reason)
	case BlockedByMaxInFlight:
		return fmt.Sprintf("%d of at most %d are in flight: one of them has to end first", j.InFlight, j.MaxInFlight)
	case BlockedByLastChance:
		return fmt.Sprintf("the process that delivered it died %d times in a row; it is on its last chance, and a process takes one such job at a time", j.Crashes)
	}
	return j.whyDownstream(by)
}

// quotaText names the quota that holds longest.
func (j *JobInfo) quotaText(uses []QuotaUse) string {
	if held := HoldingQuota(uses, j.Now); held != nil {
		return fmt.Sprintf("its quota of %s", held.Quota)
	}
	return "a quota"
}
