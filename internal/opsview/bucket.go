package opsview

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// Bucket is a bucket in numbers as JSON shows it.
type Bucket struct {
	Name string `json:"name"`

	// The first name of a bucket that was renamed, by which Redis has it. Absent otherwise.
	RenamedFrom string `json:"renamed_from,omitempty"`

	// Redis knows it, the configuration does not.
	Orphaned bool `json:"orphaned"`

	// Of an orphaned bucket: its jobs are sent, because a program with another configuration delivers them. Absent otherwise.
	DeliveredElsewhere bool `json:"delivered_elsewhere,omitempty"`

	// Whether its jobs are delivered, and what blocks those that wait.
	Verdict *Verdict `json:"verdict"`

	operator.BucketNumbers

	// True if nothing has used the bucket yet: the settings are from the configuration. Absent otherwise.
	Unused bool   `json:"unused,omitempty"`
	Rate   string `json:"rate,omitempty"`

	// Only of a bucket with quotas.
	Quotas []Quota `json:"quota_use,omitempty"`

	// Only of a bucket with budgets.
	Budgets []Budget `json:"budget_use,omitempty"`

	// Only of a bucket with batches, which makes several jobs one request.
	Batch *Batch `json:"batch,omitempty"`

	// All dead letters ever dropped because dead_retention had ended or there were too many.
	DeadDropped int64 `json:"dead_dropped"`

	// Age of the oldest job at the head of a list. In a bucket with flows dispatchers update it about every 30 seconds; 0 until then.
	OldestAge float64    `json:"oldest_age_seconds"`
	LastSlot  *time.Time `json:"last_slot,omitempty"`

	// When the last of the waiting jobs is sent, at the earliest: as `eta` of a receipt, without the bounds of single flows and groups. Absent: none
	// waits, or the time is not known, as while flows are blocked: `empty_unknown` of the verdict says why.
	Empty *time.Time `json:"empty,omitempty"`

	// The results of ended jobs: the log of deliveries. Absent of a bucket that keeps none.
	Results *KeptResults `json:"results,omitempty"`

	// Callbacks that wait for the bucket that delivers them. They count against the capacity, in addition to unfinished jobs. Absent if there are none.
	Callbacks *Callbacks `json:"callbacks,omitempty"`

	// Only of a bucket with flows. The bucket's `waiting` then counts all waiting jobs, and `later` is 0.
	Flows *PartCounts `json:"flows,omitempty"`

	// Only of a bucket with groups.
	Groups *PartCounts `json:"groups,omitempty"`

	// Only of a bucket in a pool. The limits of a pool hold for all its buckets together.
	Pool *Pool `json:"pool,omitempty"`

	// True if the bucket lives in another pool than in the configuration of this process, or in none. The numbers are of its real place. The
	// bucket changes its pool when a dispatcher starts with the new configuration or reloads it; in a Redis Cluster once it is empty.
	Elsewhere bool `json:"elsewhere,omitempty"`

	// Only of a paused bucket.
	Pause *Pause `json:"pause,omitempty"`

	// Settings that an operator changed, if they differ from the configuration.
	Overrides []Override `json:"overrides"`

	Downstream *Downstream `json:"downstream,omitempty"` // the effect of its responses; none without one

	// Whether the bucket dispatches now. Absent for a bucket that always dispatches at its rate.
	Hours *Hours `json:"hours,omitempty"`

	// The last drain that an operator started. Absent if there was none.
	Drain *Drain `json:"drain,omitempty"`

	// What needs attention.
	Notes []string `json:"notes"`

	// For each of the notes the command that helps, without the name of the program; "" where there is none. Only set for status.
	Help []string `json:"-"`

	// Settings that differ from the configuration of this process or of another running one, also of the bucket's pool.
	Differences []Difference `json:"differences"`

	// The process that wrote the effective settings. Absent if none has.
	Written *Written `json:"written,omitempty"`

	// The last changes of settings by dispatchers and operators, newest first: up to 20 of the bucket and of its pool. Absent if there are none, and in a
	// list of several buckets.
	SettingChanges []shaper.SettingsChange `json:"setting_changes,omitempty"`

	Outcome
	ReleasedFlows
}

// Batch are the batches of a bucket.
type Batch struct {
	MaxSize  int64   `json:"max_size"`
	MaxBytes int64   `json:"max_bytes"`
	MaxWait  float64 `json:"max_wait_seconds"`

	// The requests that max_in_flight bounds: in_flight counts the jobs in them.
	RequestsInFlight int64 `json:"requests_in_flight"`
}

// Callbacks are a bucket's callbacks that wait for the bucket that delivers them.
type Callbacks struct {
	Waiting   int64   `json:"waiting"` // they count against the capacity, in addition to unfinished jobs
	OldestAge float64 `json:"oldest_age_seconds"`
}

// PartCounts are the flows or the groups of a bucket in numbers.
type PartCounts struct {
	// Flows that have jobs, or had some lately. A list of flows also has those with only settings.
	Known int64 `json:"known"`

	// Flows that have something to send, now or later. Absent in a bucket with groups, which does not count them.
	Waiting *int64 `json:"waiting,omitempty"`

	// Flows that their downstream holds. Dispatchers count these three about every 30 seconds. Absent if there are none.
	Held int64 `json:"held,omitempty"`

	// Flows whose circuit breaker is open.
	Open int64 `json:"breaker_open,omitempty"`

	// Flows whose circuit breaker is half-open.
	HalfOpen int64 `json:"breaker_half_open,omitempty"`

	// Flows that are disabled. Absent if there are none.
	Disabled int64 `json:"disabled,omitempty"`
}

// Outcome is the result of a change, next to the changed object.
type Outcome struct {
	// Only in the response to a change: there was something to resume, release, enable or delete.
	Changed *bool `json:"changed,omitempty"`

	// Only in the response to a change of settings.
	Changes []shaper.Change `json:"changes,omitempty"`
}

// ReleasedFlows is the result of a release of all flows of a bucket.
type ReleasedFlows struct {
	// Only in the response to a release with all_flows=true: how many flows had something to release.
	FlowsReleased *int64 `json:"flows_released,omitempty"`

	// True if the time of that release ran out before it had read all flows. Absent otherwise.
	More bool `json:"more,omitempty"`
}

// OutcomeOf returns the outcome of a change that may have had nothing to do.
func OutcomeOf(changed bool) Outcome { return Outcome{Changed: &changed} }

// Written is the writer of the settings of a bucket.
type Written struct {
	// Its program, its number and its host.
	By string `json:"by" jsonschema:"example=dispatcher 4711 on web-1"`

	// When it started or reloaded its configuration.
	At *time.Time `json:"at,omitempty"`

	// True if the process does not own the settings, as a producer: the next dispatcher replaces them.
	Provisional bool `json:"provisional,omitempty"`
}

// BucketOf returns the view of a bucket, with its verdict. configured is the bucket in the configuration here, nil if it has none. hasConfiguration says
// whether the configuration has any bucket: a command may have read no file. pool is the bucket's pool, nil if it is in none.
func BucketOf(info operator.BucketInfo, verdict *operator.Verdict, configured *shaper.Bucket, hasConfiguration bool, pool *operator.PoolDetails, author shaper.Authorship) *Bucket {
	info.Empty = verdict.Empty
	view := &Bucket{Verdict: VerdictOf(verdict), Name: info.Name, Orphaned: configured == nil, Unused: configured != nil && !info.Configured && info.Move == nil}
	if view.Unused {
		info.Rate, info.Burst, info.Capacity, info.Revision = configured.Rate, configured.Burst, configured.Capacity, configured.Revision
		info.Quotas, info.Budgets = unusedQuotas(configured.Quotas), unusedBudgets(configured.Budgets)
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
	view.Budgets = BudgetsOf(info.Budgets, info.Now)
	view.Hours, view.Drain, view.Empty = HoursOf(info.Hours), DrainOf(info.Drain), moment(info.Empty)
	if view.Hours != nil {
		view.Hours.Empty, view.Hours.Late = view.Empty, string(verdict.Late)
	}
	if configured != nil && configured.Batch.Has() {
		b := configured.Batch
		view.Batch = &Batch{b.MaxSize, b.MaxBytes, b.MaxWait.Seconds(), info.Requests}
	}
	view.Results = resultsOf(&info.Results, info.Now)
	if info.Callbacks > 0 {
		view.Callbacks = &Callbacks{info.Callbacks, info.OldestCallbackAge.Seconds()}
	}
	view.count(&info)
	view.DeliveredElsewhere = view.Orphaned && leftLately(&info)
	view.RenamedFrom = info.FirstName
	if info.Elsewhere {
		pool = nil // the one of the configuration
	}
	if author.By != "" {
		view.Written = &Written{author.By, instant(author.At), author.Provisional}
	}
	view.SettingChanges = author.Changes
	view.Differences = differences(&info, configured, pool, author)
	view.note(&info, configured, hasConfiguration)
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

// breakersText returns how many flows send nothing because of their receivers, "" if none.
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

// leftLately reports whether a bucket sent a job in the last minute, or in the last two intervals of its rate: a dispatcher delivers its jobs.
func leftLately(info *operator.BucketInfo) bool {
	within := time.Minute
	if perSecond := info.Rate.PerSecond(); perSecond > 0 {
		within = max(within, time.Duration(2/perSecond*float64(time.Second)))
	}
	return !info.LastSlot.IsZero() && info.Now.Sub(info.LastSlot) < within
}

// orphanText returns, for a bucket outside of the configuration here, which process wrote its settings, as far as that is known. That is no fault if a
// Go program did: it declares its buckets itself. A dispatcher did by another configuration, which may be gone.
func (v *Bucket) orphanText(info *operator.BucketInfo) string {
	by := ""
	if v.Written != nil && !v.Written.Provisional {
		by = v.Written.By
	}
	ofProgram := by != "" && !strings.HasPrefix(by, "dispatcher ")
	switch holds := v.Unfinished+v.Scheduled+v.Dead+info.Callbacks > 0; {
	case v.DeliveredElsewhere && ofProgram:
		return fmt.Sprintf("declared by %s, not by the configuration here, as is normal for a bucket of a Go program: its last job left %s", by, Relative(info.LastSlot, info.Now))
	case v.DeliveredElsewhere:
		return fmt.Sprintf("not in the configuration here: its last job left %s, by a dispatcher that had another configuration (its settings are of %s)",
			Relative(info.LastSlot, info.Now), cmp.Or(by, "a program that names none"))
	case ofProgram && holds:
		return fmt.Sprintf("declared by %s, not by the configuration here, and no job left it lately: if that program runs no longer, the bucket is orphaned, and no dispatcher delivers its jobs", by)
	case ofProgram:
		return fmt.Sprintf("declared by %s, not by the configuration here, and empty: if that program runs no longer, the bucket is orphaned", by)
	case by != "" && holds:
		return fmt.Sprintf("orphaned: not in the configuration here, and no job left it lately: unless %s still runs with another one, no dispatcher delivers its jobs", by)
	case by != "":
		return fmt.Sprintf("orphaned: not in the configuration here, and empty; its settings are of %s", by)
	case holds:
		return "orphaned: not in the configuration, no dispatcher delivers its jobs"
	}
	return "orphaned: not in the configuration, and empty"
}

// note fills in the notes, with the commands that help.
func (v *Bucket) note(info *operator.BucketInfo, configured *shaper.Bucket, hasConfiguration bool) {
	list := noteList{bucket: v.Name, notes: []string{}}
	v.noteWaits(&list, info)
	switch {
	case v.Orphaned && hasConfiguration:
		list.add("bucket show BUCKET", "%s", v.orphanText(info))
	case v.Orphaned && !v.DeliveredElsewhere:
		list.add("bucket show BUCKET", "no job left it lately, and no configuration was read here that may have it")
	case v.Unused:
		list.add("", "not used yet")
	case configured != nil && v.Revision > configured.Revision:
		list.add("bucket list --diff", "obeys revision %d, the configuration here has %d", v.Revision, configured.Revision)
	}
	v.noteState(&list, info, configured)
	v.Notes, v.Help = list.notes, list.help
}

type noteList struct {
	bucket      string
	notes, help []string
}

// add adds a note, and the command on the bucket that helps: "" without one.
func (l *noteList) add(command, format string, args ...any) {
	if command != "" {
		command = strings.Replace(command, "BUCKET", l.bucket, 1)
	}
	l.notes, l.help = append(l.notes, fmt.Sprintf(format, args...)), append(l.help, command)
}

// noteWaits notes what blocks the jobs.
func (v *Bucket) noteWaits(list *noteList, info *operator.BucketInfo) {
	if v.Pause != nil {
		list.add("bucket resume BUCKET", "%s", v.Pause.Text(info.Now))
	}
	isShown := v.Verdict.Code == operator.WhyPaused && v.Pause != nil || v.Verdict.Code == operator.WhyNoDispatcher && v.Orphaned // by another note
	if v.Verdict.Problem && !isShown {
		list.add(v.Verdict.help(), "%s", v.Verdict.Sentence) // it includes what the following notes say
	} else {
		v.noteBounds(list, info)
	}
	if v.Drain != nil && v.Drain.State == string(shaper.DrainRuns) {
		list.add("bucket drain BUCKET --watch", "a drain is %s", v.Drain.Text(info.Now))
	}
}

// noteBounds notes blockers, present or possible, of a bucket whose verdict is no problem. A closed bucket follows its timetable.
func (v *Bucket) noteBounds(list *noteList, info *operator.BucketInfo) {
	if d := v.Downstream; d != nil && d.Text != "" {
		help := "bucket release BUCKET"
		switch {
		case d.Reason == shaper.ReasonMoves:
			help = ""
		case d.Breaker != shaper.BreakerClosed: // a released job would fail again and spend attempts: the reason of the failures helps
			help = "job list BUCKET --state later"
		}
		list.add(help, "%s", d.Text)
	}
	if text := quotaNote(info.Quotas, info.Now); text != "" {
		list.add("bucket show BUCKET", "%s", text)
	}
	if text := budgetNote(info.Budgets, info.Now); text != "" {
		list.add("bucket show BUCKET", "%s", text)
	}
	if p := info.Pool; p != nil {
		if text := quotaNote(p.Quotas, info.Now); text != "" {
			list.add("pool show "+p.Name, "pool %s: %s", p.Name, text)
		}
		if text := budgetNote(p.Budgets, info.Now); text != "" {
			list.add("pool show "+p.Name, "pool %s: %s", p.Name, text)
		}
	}
	if text := breakersText(v.Flows); text != "" {
		list.add("flow list BUCKET --failing", "%s", text)
	}
}

// noteState notes the unusual state and settings of the bucket.
func (v *Bucket) noteState(list *noteList, info *operator.BucketInfo, configured *shaper.Bucket) {
	if v.Purging > 0 {
		list.add("", "a purge has %d left to remove", v.Purging)
	}
	if v.Capacity > 0 && v.Unfinished+info.Callbacks >= v.Capacity {
		list.add("bucket show BUCKET", "full")
	}
	if v.DeadWarn > 0 && v.Dead > v.DeadWarn {
		list.add("dead list BUCKET", "%s, more than %d (dead_warn)", Count(v.Dead, "dead letter"), v.DeadWarn)
	}
	if here := v.differsHere(); here > 1 || here == 1 && v.Pause == nil {
		configuration := "the configuration here"
		if v.Orphaned {
			configuration = "its configuration"
		}
		list.add("bucket list --diff", "differs from %s, see bucket list --diff", configuration)
	}
	if others := v.dissenters(); len(others) > 0 {
		list.add("bucket list --diff", "%s: see bucket list --diff", othersText(others))
	}
	if v.Written != nil && v.Written.Provisional {
		list.add("", "made by %s, which does not own it: a dispatcher that has the bucket replaces its settings", v.Written.By)
	}
	if text := renameText(info); text != "" {
		list.add("bucket list --diff", "%s", text)
	}
	switch {
	case info.Move != nil:
		list.add("", "%s", moveText(info))
	case v.Elsewhere:
		list.add("", "%s", PlannedMove(info, configured))
	}
}
