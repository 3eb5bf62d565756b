package shaper

import (
	"fmt"
	"strings"
	"time"
)

// Hold is something that keeps a job from leaving.
type Hold string

// What may hold a job back. Several may at once.
const (
	HoldPaused   Hold = "paused"        // its bucket is
	HoldAhead    Hold = "ahead"         // others leave first, of its flow
	HoldPace     Hold = "pace"          // it is next, of its flow, and waits for its slot
	HoldTime     Hold = "not-before"    // its time has not come
	HoldBackoff  Hold = "backoff"       // an attempt failed, and the next has not come
	HoldInFlight Hold = "max-in-flight" // as many as may are on their way
	HoldQuota    Hold = "quota"         // as many as may have left in a window of its bucket or its flow

	HoldFlowPaused   Hold = "flow-paused"        // its flow is
	HoldFlowPace     Hold = "flow-pace"          // the rate of its flow lets it leave later
	HoldFlowInFlight Hold = "flow-max-in-flight" // as many of its flow as may are on their way

	HoldGroupPaused   Hold = "group-paused"        // its group is
	HoldGroupPace     Hold = "group-pace"          // the rate of its group lets it leave later
	HoldGroupQuota    Hold = "group-quota"         // as many of its group as may have left in a window
	HoldGroupInFlight Hold = "group-max-in-flight" // as many of its group as may are on their way

	HoldPoolPace     Hold = "pool-pace"          // the rate of its bucket's pool lets it leave later
	HoldPoolQuota    Hold = "pool-quota"         // as many as may have left the pool in a window
	HoldPoolInFlight Hold = "pool-max-in-flight" // as many of the pool as may are on their way

	HoldLastChance Hold = "last-chance" // it goes alone, and another one does now
)

// Holds lists all that holds the job back; nothing if it does not wait.
func (j *JobInfo) Holds() []Hold {
	var holds []Hold
	if j.State != StateQueued && j.State != StateScheduled && j.State != StateRetrying {
		return nil
	}
	if j.Pause != nil {
		holds = append(holds, HoldPaused)
	}
	if isPaused(j.OfGroup) {
		holds = append(holds, HoldGroupPaused)
	}
	if isPaused(j.OfFlow) {
		holds = append(holds, HoldFlowPaused)
	}
	switch {
	case j.State == StateQueued && j.Position > 0:
		holds = append(holds, HoldAhead)
	case j.State == StateQueued:
		holds = append(holds, HoldPace)
	case j.State == StateScheduled:
		holds = append(holds, HoldTime)
	case j.setAside():
		holds = append(holds, HoldLastChance)
	default:
		holds = append(holds, HoldBackoff)
	}
	if j.MaxInFlight > 0 && j.InFlight >= j.MaxInFlight {
		holds = append(holds, HoldInFlight)
	}
	if g := j.OfGroup; g != nil {
		if g.MaxInFlight > 0 && g.InFlight >= g.MaxInFlight {
			holds = append(holds, HoldGroupInFlight)
		}
		if !g.RateFrees.IsZero() {
			holds = append(holds, HoldGroupPace)
		}
		if !g.QuotaFrees.IsZero() {
			holds = append(holds, HoldGroupQuota)
		}
	}
	if f := j.OfFlow; f != nil {
		if f.MaxInFlight > 0 && f.InFlight >= f.MaxInFlight {
			holds = append(holds, HoldFlowInFlight)
		}
		if !f.RateFrees.IsZero() {
			holds = append(holds, HoldFlowPace)
		}
	}
	if !j.quotaFrees().IsZero() {
		holds = append(holds, HoldQuota)
	}
	if p := j.OfPool; p != nil {
		if p.MaxInFlight > 0 && p.InFlight >= p.MaxInFlight {
			holds = append(holds, HoldPoolInFlight)
		}
		if !p.RateFrees.IsZero() {
			holds = append(holds, HoldPoolPace)
		}
		if !p.QuotaFrees.IsZero() {
			holds = append(holds, HoldPoolQuota)
		}
	}
	return holds
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

func isPaused(of *JobFlow) bool { return of != nil && of.Pause != nil }

// Earliest is the earliest instant at which the job may depart, as far as that can be
// known; zero while its bucket, group or flow is paused, and if the job does not wait.
func (j *JobInfo) Earliest() time.Time {
	switch {
	case j.Pause != nil || isPaused(j.OfGroup) || isPaused(j.OfFlow):
		return time.Time{}
	case j.State == StateQueued:
		return j.ETA
	case j.State == StateScheduled || j.State == StateRetrying:
		earliest := latest(latest(j.NextSlot, j.Due), j.quotaFrees())
		if j.OfGroup != nil {
			earliest = latest(earliest, j.OfGroup.QuotaFrees)
		}
		if j.OfPool != nil {
			earliest = latest(latest(earliest, j.OfPool.RateFrees), j.OfPool.QuotaFrees)
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
		for _, hold := range j.Holds() {
			parts = append(parts, j.why(hold))
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

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// clockText is an instant for people, to the millisecond.
func clockText(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

func (j *JobInfo) why(hold Hold) string {
	switch hold {
	case HoldGroupPaused:
		return whyPaused(j.OfGroup.Pause, fmt.Sprintf("group %q", j.Group))
	case HoldGroupPace:
		return fmt.Sprintf("group %q may send again at %s, at its own pace", j.Group, clockText(j.OfGroup.RateFrees))
	case HoldGroupQuota:
		return fmt.Sprintf("as many have left as a quota allows group %q; it is free again at %s", j.Group, clockText(j.OfGroup.QuotaFrees))
	case HoldGroupInFlight:
		return fmt.Sprintf("%d of at most %d of group %q are in flight: one of them has to end first", j.OfGroup.InFlight, j.OfGroup.MaxInFlight, j.Group)
	case HoldPoolPace:
		return fmt.Sprintf("pool %q may send again at %s, at its own pace", j.OfPool.Name, clockText(j.OfPool.RateFrees))
	case HoldPoolQuota:
		return fmt.Sprintf("as many have left as a quota allows pool %q; it is free again at %s", j.OfPool.Name, clockText(j.OfPool.QuotaFrees))
	case HoldPoolInFlight:
		return fmt.Sprintf("%d of at most %d of pool %q are in flight: one of them has to end first", j.OfPool.InFlight, j.OfPool.MaxInFlight, j.OfPool.Name)
	case HoldPaused:
		return whyPaused(j.Pause, fmt.Sprintf("bucket %q", j.Bucket))
	case HoldFlowPaused:
		return whyPaused(j.OfFlow.Pause, fmt.Sprintf("flow %q", j.Flow))
	case HoldFlowPace:
		return fmt.Sprintf("flow %q may send again at %s, at its own pace", j.Flow, clockText(j.OfFlow.RateFrees))
	case HoldFlowInFlight:
		return fmt.Sprintf("%d of at most %d of flow %q are in flight: one of them has to end first", j.OfFlow.InFlight, j.OfFlow.MaxInFlight, j.Flow)
	case HoldQuota:
		return fmt.Sprintf("as many have left as a quota allows; it is free again at %s", clockText(j.quotaFrees()))
	case HoldAhead:
		if j.OfFlow != nil {
			return fmt.Sprintf("%d ahead of it leave flow %q of bucket %q first, in its turns", j.Position, j.Flow, j.Bucket)
		}
		return fmt.Sprintf("%d ahead of it leave bucket %q first, at its pace", j.Position, j.Bucket)
	case HoldPace:
		if j.OfFlow != nil {
			return fmt.Sprintf("it is the next of flow %q, which waits for its turn in bucket %q", j.Flow, j.Bucket)
		}
		return fmt.Sprintf("it is the next to leave bucket %q, at its pace", j.Bucket)
	case HoldTime:
		return "its time has not come"
	case HoldBackoff:
		return fmt.Sprintf("attempt %d failed (%s); it waits for the next one", j.Attempts, j.Last.Reason)
	case HoldInFlight:
		return fmt.Sprintf("%d of at most %d are in flight: one of them has to end first", j.InFlight, j.MaxInFlight)
	case HoldLastChance:
		return fmt.Sprintf("the process that delivered it died %d times in a row; it is on its last chance, and a process takes one such job at a time", j.Crashes)
	}
	return ""
}
