package opsview

import (
	"fmt"
	"strings"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// Bucket is a bucket in numbers as JSON shows it.
type Bucket struct {
	Name     string `json:"name"`
	Orphaned bool   `json:"orphaned"` // Redis knows it, the configuration does not
	// DeliveredElsewhere says of an orphaned bucket that its jobs leave all the same: a program with another configuration delivers them.
	DeliveredElsewhere bool `json:"delivered_elsewhere,omitempty"`

	operator.BucketNumbers

	Unused bool    `json:"unused,omitempty"` // nothing has used it yet: its settings are those of the configuration
	Rate   string  `json:"rate,omitempty"`
	Quotas []Quota `json:"quota_use,omitempty"` // only of one with quotas

	Batch       *Batch     `json:"batch,omitempty"` // only of one with batches
	DeadDropped int64      `json:"dead_dropped"`    // as their retention had ended, or as there were too many, ever
	OldestAge   float64    `json:"oldest_age_seconds"`
	LastSlot    *time.Time `json:"last_slot,omitempty"`
	Empty       *time.Time `json:"empty,omitempty"`     // when the last job leaves that waits now, at the earliest; none: none waits, or nobody knows
	Callbacks   *Callbacks `json:"callbacks,omitempty"` // that wait; none if none does

	Flows  *PartCounts `json:"flows,omitempty"`  // only of one with flows
	Groups *PartCounts `json:"groups,omitempty"` // only of one with groups of them

	Pool      *Pool `json:"pool,omitempty"`      // only of a bucket in a pool
	Elsewhere bool  `json:"elsewhere,omitempty"` // it lives in another pool than configured here

	Pause     *Pause     `json:"pause,omitempty"` // only of one that is paused
	Overrides []Override `json:"overrides"`       // settings that were changed at run time

	Downstream *Downstream `json:"downstream,omitempty"` // what the answers to it have changed; none if nothing

	Hours *Hours `json:"hours,omitempty"` // whether it leaks now; none of a bucket that does at all times
	Drain *Drain `json:"drain,omitempty"` // the last one that an operator has asked for

	Notes       []string     `json:"notes"`       // what people should know
	Differences []Difference `json:"differences"` // from the configuration here and from those of other processes, those of its pool too

	Written        *Written                `json:"written,omitempty"`         // none of a bucket that a program of an older version wrote
	SettingChanges []shaper.SettingsChange `json:"setting_changes,omitempty"` // newest first; where one bucket is shown

	Outcome
}

// Batch are the batches of a bucket.
type Batch struct {
	MaxSize          int64   `json:"max_size"`
	MaxBytes         int64   `json:"max_bytes"`
	MaxWait          float64 `json:"max_wait_seconds"`
	RequestsInFlight int64   `json:"requests_in_flight"` // max_in_flight bounds them; in_flight are the jobs in them
}

// Callbacks are those of a bucket that wait for the bucket that delivers them.
type Callbacks struct {
	Waiting   int64   `json:"waiting"` // they count against the capacity, beside unfinished jobs
	OldestAge float64 `json:"oldest_age_seconds"`
}

// PartCounts are the flows or the groups of a bucket in numbers.
type PartCounts struct {
	Known   int64  `json:"known"`             // that have jobs, or had some lately
	Waiting *int64 `json:"waiting,omitempty"` // have something to send, now or later; not counted for flows in groups

	Held     int64 `json:"held,omitempty"` // of flows: their downstream holds them; dispatchers count these about every 30 s
	Open     int64 `json:"breaker_open,omitempty"`
	HalfOpen int64 `json:"breaker_half_open,omitempty"`
	Disabled int64 `json:"disabled,omitempty"`
}

// Outcome is what a change came to, beside the object after it.
type Outcome struct {
	Changed *bool           `json:"changed,omitempty"` // of a resume, a release, a reset of a flow's settings: there was something to change
	Changes []shaper.Change `json:"changes,omitempty"` // of settings that were set or reset

	FlowsReleased *int64 `json:"flows_released,omitempty"` // of a release of all flows: how many had something to release
	More          bool   `json:"more,omitempty"`           // the time was up before all flows were looked at
}

// OutcomeOf is the outcome of a change that may have had nothing to do.
func OutcomeOf(changed bool) Outcome { return Outcome{Changed: &changed} }

// Written is who wrote the settings of a bucket.
type Written struct {
	By          string     `json:"by"`
	At          *time.Time `json:"at,omitempty"`          // when that process started or reloaded
	Provisional bool       `json:"provisional,omitempty"` // it does not own them: the next dispatcher replaces them
}

// BucketOf shows a bucket. configured is the bucket as the configuration here has it, nil if it has none. pool is the
// bucket's pool, nil if it is in none.
func BucketOf(info operator.BucketInfo, configured *shaper.Bucket, pool *operator.PoolDetails, author shaper.Authorship) *Bucket {
	view := &Bucket{Name: info.Name, Orphaned: configured == nil, Unused: configured != nil && !info.Configured}
	if view.Unused {
		info.Rate, info.Burst, info.Capacity, info.Revision = configured.Rate, configured.Burst, configured.Capacity, configured.Revision
		info.Quotas = unusedQuotas(configured.Quotas)
		info.ScheduledCapacity, info.MaxInFlight = configured.ScheduledCapacity, configured.EffectiveMaxInFlight()
		if p := configured.Pool; p != nil && info.Pool != nil {
			info.Pool.Rate, info.Pool.Burst, info.Pool.MaxInFlight, info.Pool.Weight = p.Rate, max(p.Burst, 1), p.MaxInFlight, configured.Weight
		}
	}
	if !info.Rate.IsZero() {
		view.Rate = info.Rate.String()
	}
	view.BucketNumbers = info.BucketNumbers
	view.DeadDropped, view.OldestAge = info.DeadDroppedOld+info.DeadDroppedExtra, info.OldestAge.Seconds()
	view.LastSlot, view.Pool, view.Elsewhere = instant(info.LastSlot), PoolOf(info.Pool, info.Now), info.Elsewhere
	view.Pause, view.Overrides = PauseOf(info.Pause), OverridesOf(info.Overrides)
	view.Downstream, view.Quotas = DownstreamOf(info.Downstream, info.Now), QuotasOf(info.Quotas, info.Now)
	view.Hours, view.Drain, view.Empty = HoursOf(info.Hours), DrainOf(info.Drain), moment(info.Empty)
	if view.Hours != nil {
		view.Hours.Empty = view.Empty
	}
	if configured != nil && configured.Batch.Has() {
		b := configured.Batch
		view.Batch = &Batch{b.MaxSize, b.MaxBytes, b.MaxWait.Seconds(), info.Requests}
	}
	if info.Callbacks > 0 {
		view.Callbacks = &Callbacks{info.Callbacks, info.OldestCallbackAge.Seconds()}
	}
	view.count(&info)
	view.DeliveredElsewhere = view.Orphaned && leftLately(&info)
	if info.Elsewhere {
		pool = nil // the one of the configuration
	}
	if author.By != "" {
		view.Written = &Written{author.By, instant(author.At), author.Provisional}
	}
	view.SettingChanges = author.Changes
	view.Differences = differences(&info, configured, pool, author)
	view.Notes = view.notes(&info, configured)
	return view
}

// count shows how many flows and groups a bucket has.
func (v *Bucket) count(info *operator.BucketInfo) {
	switch {
	case info.HasGroups:
		v.Flows, v.Groups = &PartCounts{Known: info.Flows}, &PartCounts{Known: info.Groups, Waiting: &info.GroupsWait}
	case info.HasFlows:
		v.Flows = &PartCounts{Known: info.Flows, Waiting: &info.FlowsWait}
	}
	if f := v.Flows; f != nil {
		f.Held, f.Open, f.HalfOpen, f.Disabled = info.FlowsHeld, info.FlowsOpen, info.FlowsHalfOpen, info.FlowsDisabled
	}
}

// breakersText tells how many flows send nothing because of their receivers, "" if none.
func breakersText(f *PartCounts) string {
	if f == nil {
		return ""
	}
	var list []string
	for _, c := range []struct {
		n         int64
		one, many string
	}{{f.Open, "breaker open", "breakers open"}, {f.HalfOpen, "breaker half-open", "breakers half-open"}, {f.Disabled, "flow disabled", "flows disabled"}} {
		switch c.n {
		case 0:
		case 1:
			list = append(list, "1 "+c.one)
		default:
			list = append(list, fmt.Sprintf("%d %s", c.n, c.many))
		}
	}
	return strings.Join(list, ", ")
}

// leftLately reports whether a job left a bucket in the last minute, or in the last two intervals of its rate: a dispatcher delivers its jobs.
func leftLately(info *operator.BucketInfo) bool {
	within := time.Minute
	if perSecond := info.Rate.PerSecond(); perSecond > 0 {
		within = max(within, time.Duration(2/perSecond*float64(time.Second)))
	}
	return !info.LastSlot.IsZero() && info.Now.Sub(info.LastSlot) < within
}

// orphanText says of a bucket that the configuration here does not have, who delivers its jobs as far as that is known. A program with another
// configuration may: it leaves its name where it wrote the settings, and the time of each departure.
func (v *Bucket) orphanText(info *operator.BucketInfo) string {
	by := ""
	if v.Written != nil && !v.Written.Provisional {
		by = v.Written.By
	}
	switch holds := v.Unfinished+v.Scheduled+v.Dead+info.Callbacks > 0; {
	case v.DeliveredElsewhere:
		text := fmt.Sprintf("not in the configuration here: its last job left %s, by a dispatcher that had another configuration", Relative(info.LastSlot, info.Now))
		if by != "" {
			text += fmt.Sprintf(" (its settings are of %s)", by)
		}
		return text
	case by != "" && holds:
		return fmt.Sprintf("orphaned: not in the configuration here, and no job left it lately: unless %s still runs, no dispatcher delivers its jobs", by)
	case by != "":
		return fmt.Sprintf("orphaned: not in the configuration here, and empty; its settings are of %s", by)
	case holds:
		return "orphaned: not in the configuration, no dispatcher delivers its jobs"
	}
	return "orphaned: not in the configuration, and empty"
}

func (v *Bucket) notes(info *operator.BucketInfo, configured *shaper.Bucket) []string {
	list := []string{}
	note := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	if v.Pause != nil {
		note("%s", v.Pause.Text(info.Now))
	}
	if v.Downstream != nil && v.Downstream.Text != "" {
		note("%s", v.Downstream.Text)
	}
	if text := quotaNote(info.Quotas, info.Now); text != "" {
		note("%s", text)
	}
	if p := info.Pool; p != nil {
		if text := quotaNote(p.Quotas, info.Now); text != "" {
			note("pool %s: %s", p.Name, text)
		}
	}
	if text := breakersText(v.Flows); text != "" {
		note("%s", text)
	}
	if h := v.Hours; h != nil && !h.Open {
		note("%s", h.Text(info.Now))
	}
	if h := v.Hours; h != nil && h.Late != "" {
		note("late: not all of %d jobs leave by %s (%s)", h.FinishJobs, h.Finish.Format(time.RFC3339), h.Late)
	}
	if v.Drain != nil && v.Drain.State == string(shaper.DrainRuns) {
		note("a drain is %s", v.Drain.Text(info.Now))
	}
	switch {
	case v.Orphaned:
		note("%s", v.orphanText(info))
	case v.Unused:
		note("not used yet")
	case v.Revision > configured.Revision:
		note("obeys revision %d, the configuration here has %d", v.Revision, configured.Revision)
	}
	if v.Purging > 0 {
		note("a purge has %d left to remove", v.Purging)
	}
	if v.Capacity > 0 && v.Unfinished+info.Callbacks >= v.Capacity {
		note("full")
	}
	if v.DeadWarn > 0 && v.Dead > v.DeadWarn {
		note("%s, more than %d (dead_warn)", Count(v.Dead, "dead letter"), v.DeadWarn)
	}
	if here := v.differsHere(); here > 1 || here == 1 && v.Pause == nil {
		note("differs from the configuration here, see bucket list --diff")
	}
	if others := v.dissenters(); len(others) > 0 {
		note("%s: see bucket list --diff", othersText(others))
	}
	if v.Written != nil && v.Written.Provisional {
		note("made by %s, which does not own it: a dispatcher that has the bucket replaces its settings", v.Written.By)
	}
	if v.Elsewhere {
		live := ""
		if v.Pool != nil {
			live = v.Pool.Name
		}
		note("it is in %s, and the configuration here has it in %s: once it is empty, a dispatcher that starts with this configuration, or reloads it, moves it",
			poolName(live), poolName(poolNameOf(configured)))
	}
	return list
}
