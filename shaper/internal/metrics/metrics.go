// Package metrics counts what producers, dispatchers and operators do.
package metrics

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/shaper"
)

// Metrics counts what producers, dispatchers and operators do. A nil *Metrics counts
// nothing. Labels come from closed lists: buckets of the configuration and
// constants; never an id, a URL or a tenant.
type Metrics struct {
	decisions        *counters
	limits           *counters
	callers          *admission.RefusedCallers
	overflow         *counters
	departures       *counters
	succeeded        *counters
	batched          *counters
	lateness         *histograms
	attempts         *counters
	reasons          reasons
	duration         *histograms
	retries          *counters
	dead             *counters
	lost             *counters
	reclaimed        *counters
	repaired         *counters
	settingsLost     *counters
	expired          *counters
	returned         *counters
	localFaults      *counters
	actions          *counters
	units            *counters
	schedules        *counters
	scheduleLateness *histograms
	steps            prometheus.Counter
	skew             prometheus.Gauge
	scriptMetrics
}

// Outcomes of enqueue that are no refusal.
const (
	decisionAdmitted  = "admitted"
	decisionDuplicate = "duplicate"
)

// Why a lease ended without an outcome of its holder.
const (
	reclaimExpired = "expired"
	reclaimPoison  = "poison"
)

// New registers the metrics with reg. Actors that share a registry share its metrics. A nil reg counts nothing.
func New(reg prometheus.Registerer) (*Metrics, error) {
	if reg == nil {
		return nil, nil //nolint:nilnil // a nil *Metrics counts nothing
	}
	var errs []error
	counter := func(name, help string, labels ...string) *counters {
		return registered(reg, &errs, newCounters(prometheus.CounterOpts{Name: "tundish_" + name, Help: help}, labels...))
	}
	histogram := func(name, help string, bounds []float64) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Name: "tundish_" + name, Help: help, Buckets: bounds}
	}
	ofBuckets := func(opts prometheus.HistogramOpts) *histograms { return registered(reg, &errs, newHistograms(opts)) }
	fine := []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1}
	m := &Metrics{
		decisions: counter("admission_decisions_total", "Jobs that asked to be let in, by what was decided.", "decision"),
		limits: counter("admission_limit_refusals_total",
			"Jobs that a limit of the bucket refused, or would have refused if it were not in shadow mode. A job may be refused by several limits.", "limit", "outcome"),
		overflow:   counter("admission_overflow_total", "Jobs of callers above a limit's max_keys, which share one key, by limit.", "limit"),
		departures: counter("departures_total", "Requests that left, first tries and retries alike. A batch is one."),
		succeeded:  counter("deliveries_succeeded_total", "Requests whose delivery succeeded. A batch is one."),
		batched:    counter("batched_jobs_total", "Jobs that left in batches."),
		lateness:   ofBuckets(histogram("departure_lateness_seconds", "How late deliveries began after their slots; connecting does not count.", fine)),
		attempts:   counter("attempts_total", "Attempts that ended, by outcome and by reason: a word of the worker, or the class of the status.", "outcome", "reason"),
		duration:   ofBuckets(histogram("delivery_duration_seconds", "Time from departure to the end of a delivery.", prometheus.DefBuckets)),
		retries:    counter("retries_total", "Deliveries that failed and will be tried again."),
		dead:       counter("dead_letters_total", "Jobs that became dead letters."),
		lost:       counter("leases_lost_total", "Leases that this process lost while it still held the job."),
		reclaimed:  counter("leases_reclaimed_total", "Leases that ran out and were taken back, by what became of the job.", "outcome"),
		expired:    counter("jobs_expired_total", "Jobs whose time ran out while they waited; they became dead letters."),
		repaired:   counter("repairs_total", "Jobs that the sweeper found in a wrong place and moved."),
		settingsLost: counter("settings_lost_total",
			"How often this process found that Redis had lost the settings of the bucket, with whatever else it lost then."),
		returned: counter("permits_returned_total",
			"Jobs returned unsent, by reason: late_connect, late_process and late_redis are permits that were void before the job departed.", "reason"),
		localFaults: counter("local_faults_total",
			"Attempts that the host of this process could not make, by reason: no resolver, no file descriptor, no route. They spend no attempt of the job.", "reason"),
		schedules: counter("schedule_fires_total",
			"Fires of schedules, by what became of them, and attempts whose job did not get in (blocked).", "outcome"),
		scheduleLateness: ofBuckets(histogram("schedule_lateness_seconds", "How long after its time the job of a fire got in.",
			[]float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 60, 3600})),
		units: counter("units_total", "Units of budgets: reserved by departures; and of departures whose outcome is settled, used, given back because less was used, and owed because more was.",
			"unit", "kind"),
		actions: counter("control_actions_total", "What operators changed of a bucket through this process.", "action"),
		steps: registered(reg, &errs, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tundish_clock_steps_total", Help: "Forward steps of the clock of Redis that were seen."})),
		skew: registered(reg, &errs, prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "tundish_clock_skew_seconds", Help: "Seconds by which the clock of Redis is ahead of the clock of this machine; below 0 if it is behind."})),
		scriptMetrics: newScriptMetrics(reg, &errs, histogram("redis_script_duration_seconds", "Time from sending a script to its reply.", fine)),
	}
	var err error
	m.callers, err = admission.RefusedCallersOf(reg)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return m, nil
}

// The series of a bucket that exist from the start, as their labels other than "bucket". All buckets share these slices.
var (
	single    = [][]string{{}}
	decided   = each(append([]string{decisionAdmitted, decisionDuplicate}, textsOf(shaper.Reasons())...)...)
	succeeded = [][]string{{shaper.ResultDone.String(), statusClass(200)}}
	acted     = each(ActionPause, ActionResume, ActionDrain, ActionRelease, ActionEnable, ActionSet, ActionReset, ActionPurge, ActionRedrive, ActionRetryNow, ActionDrop, ActionCancel,
		ActionScheduleSet, ActionScheduleRemove, ActionSchedulePause, ActionScheduleResume, ActionScheduleFire)
	fired   = each(append(textsOf(shaper.ScheduleOutcomes()), ScheduleBlocked)...)
	taken   = each(reclaimExpired, reclaimPoison)
	tooLate = each(shaper.LateReasons()...)
)

func each(words ...string) [][]string {
	series := make([][]string, len(words))
	for i, word := range words {
		series[i] = []string{word}
	}
	return series
}

func textsOf[T ~string](words []T) []string {
	texts := make([]string, len(words))
	for i, word := range words {
		texts[i] = string(word)
	}
	return texts
}

// AddBucket exposes the series of a bucket at 0, except the series of failed attempts.
func (m *Metrics) AddBucket(b string) {
	if m == nil {
		return
	}
	m.decisions.know(b, decided...)
	m.attempts.know(b, succeeded...)
	for _, c := range []*counters{m.departures, m.succeeded, m.batched, m.retries, m.dead, m.expired, m.lost, m.repaired, m.settingsLost} {
		c.know(b, single...)
	}
	m.returned.know(b, tooLate...)
	m.actions.know(b, acted...)
	m.schedules.know(b, fired...)
	m.reclaimed.know(b, taken...)
	m.lateness.know(b, single...)
	m.duration.know(b, single...)
}

// RemoveBucket removes the series of a bucket. Later counts create new ones.
func (m *Metrics) RemoveBucket(b string) {
	if m == nil {
		return
	}
	for _, c := range []*counters{m.decisions, m.limits, m.overflow, m.departures, m.succeeded, m.batched, m.attempts, m.retries, m.dead, m.lost,
		m.reclaimed, m.repaired, m.expired, m.returned, m.localFaults, m.settingsLost, m.actions, m.schedules, m.units} {
		c.forget(b)
	}
	m.lateness.forget(b)
	m.scheduleLateness.forget(b)
	m.duration.forget(b)
	m.attempts.reasons.Delete(b)
}

// CountReceipt counts how a job was admitted, or why it was refused.
func (m *Metrics) CountReceipt(r *shaper.Receipt) {
	if m == nil {
		return
	}
	decision := decisionAdmitted
	switch {
	case r.Refusal != nil:
		decision = string(r.Refusal.Reason)
	case r.Duplicate:
		decision = decisionDuplicate
	}
	m.decisions.WithLabelValues(r.Bucket, decision).Inc()
}

// Outcomes of a limit that does not allow a job: values of the label of tundish_limit_decisions_total.
const (
	limitRefused       = "refused"
	limitImpossible    = "impossible"
	limitShadowRefused = "shadow_refused"
)

// AddLimit exposes the series of a limit of a bucket at 0.
func (m *Metrics) AddLimit(bucket, limit string) {
	if m == nil {
		return
	}
	for _, outcome := range []string{limitRefused, limitImpossible, limitShadowRefused} {
		m.limits.know(bucket, []string{limit, outcome})
	}
}

// RemoveLimit removes the series of a limit of a bucket.
func (m *Metrics) RemoveLimit(bucket, limit string) {
	if m == nil {
		return
	}
	m.limits.forget(bucket, limit)
	m.overflow.forget(bucket, limit)
}

// RefusedCallers returns the callers that each limit refused most often, at most this many per limit.
func (m *Metrics) RefusedCallers(now time.Time, most int) map[string][]admission.RefusedCaller {
	if m == nil {
		return nil
	}
	return m.callers.Top(now, most)
}

// CountLimit counts a limit's decision that refuses a job of a caller, or would in shadow mode.
func (m *Metrics) CountLimit(bucket, caller string, d *admission.Decision) {
	if m == nil {
		return
	}
	if !d.WouldRefuse {
		m.callers.Count(d.Limit, caller, time.Now())
	}
	outcome := limitRefused
	switch {
	case d.WouldRefuse:
		outcome = limitShadowRefused
	case d.Impossible:
		outcome = limitImpossible
	}
	m.limits.WithLabelValues(bucket, d.Limit, outcome).Inc()
}

func (m *Metrics) CountOverflow(bucket, limit string) {
	if m != nil {
		m.overflow.WithLabelValues(bucket, limit).Inc()
	}
}

// CountDeparture counts a request that was sent. traceID, if not "", is the id of its sampled trace.
func (m *Metrics) CountDeparture(bucket string, late time.Duration, traceID string) {
	if m == nil {
		return
	}
	m.departures.WithLabelValues(bucket).Inc()
	observe(m.lateness.WithLabelValues(bucket), max(late, 0), traceID)
}

// CountBatch counts the jobs of a batch that was sent.
func (m *Metrics) CountBatch(bucket string, jobs int) {
	if m != nil {
		m.batched.WithLabelValues(bucket).Add(float64(jobs))
	}
}

// CountSucceeded counts requests whose delivery succeeded.
func (m *Metrics) CountSucceeded(bucket string, requests int) {
	if m != nil && requests > 0 {
		m.succeeded.WithLabelValues(bucket).Add(float64(requests))
	}
}

// CountOutcome counts an attempt. result is what became of the job, outcome what the worker returned. traceID is as in CountDeparture.
func (m *Metrics) CountOutcome(bucket string, result shaper.Result, outcome shaper.Outcome, took time.Duration, traceID string) {
	if m == nil {
		return
	}
	reason := m.reasons.label(outcome)
	m.attempts.WithLabelValues(bucket, result.String(), reason).Inc()
	switch result {
	case shaper.ResultRetry, shaper.ResultDead, shaper.ResultHeld, shaper.ResultDropped:
		m.attempts.reasons.Store(bucket, reason)
	}
	switch result {
	case shaper.ResultRetry:
		m.retries.WithLabelValues(bucket).Inc()
	case shaper.ResultDead:
		m.dead.WithLabelValues(bucket).Inc()
	case shaper.ResultReturned:
		m.returned.WithLabelValues(bucket, reason).Inc()
		return
	}
	observe(m.duration.WithLabelValues(bucket), took, traceID)
}

// CountLocalFault counts an attempt that the host of this process could not make.
func (m *Metrics) CountLocalFault(bucket, reason string) {
	if m != nil {
		m.localFaults.WithLabelValues(bucket, m.reasons.label(shaper.Outcome{Reason: reason})).Inc()
	}
}

func (m *Metrics) CountLost(bucket string, n int) {
	if m != nil && n > 0 {
		m.lost.WithLabelValues(bucket).Add(float64(n))
	}
}

func (m *Metrics) CountSweep(bucket string, takenBack, poison, repaired int64) {
	if m == nil {
		return
	}
	add(m.reclaimed, takenBack, bucket, reclaimExpired)
	add(m.reclaimed, poison, bucket, reclaimPoison)
	add(m.dead, poison, bucket)
	add(m.repaired, repaired, bucket)
}

// CountGivenUp counts waiting jobs that became dead letters, by their cause.
func (m *Metrics) CountGivenUp(bucket, cause string, jobs int64) {
	if m == nil {
		return
	}
	add(m.dead, jobs, bucket)
	if cause == shaper.CauseExpired {
		add(m.expired, jobs, bucket)
	}
}

// CountSettingsLost counts that Redis had lost the settings of a bucket.
func (m *Metrics) CountSettingsLost(bucket string) {
	if m != nil {
		m.settingsLost.WithLabelValues(bucket).Inc()
	}
}

func (m *Metrics) CountStep() {
	if m != nil {
		m.steps.Inc()
	}
}

// SetClockSkew sets by how much the clock of Redis is ahead.
func (m *Metrics) SetClockSkew(skew time.Duration) {
	if m != nil {
		m.skew.Set(skew.Seconds())
	}
}

// observe adds a time to a histogram. A trace makes it an exemplar, which leads from a slow bucket of the histogram to one of its requests.
func observe(to prometheus.Observer, took time.Duration, traceID string) {
	if traceID != "" {
		if exemplars, ok := to.(prometheus.ExemplarObserver); ok {
			exemplars.ObserveWithExemplar(took.Seconds(), prometheus.Labels{"trace_id": traceID})
			return
		}
	}
	to.Observe(took.Seconds())
}
