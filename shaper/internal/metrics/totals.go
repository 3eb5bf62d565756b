package metrics

import (
	"math"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/tundish-io/tundish/shaper"
)

// Totals are what this process has counted of a bucket since it started.
type Totals struct {
	Arrived  int64 // jobs that were admitted, and fires of schedules
	Refused  int64
	Departed int64 // requests: a batch is one
	Failed   int64 // attempts whose job is retried, or dead
	Late     Late  // permits that were returned unused

	Succeeded    int64  // requests whose delivery succeeded: a batch is one
	Attempts     int64  // that ended
	Unsuccessful int64  // of these attempts: failed, held or dropped
	Gone         int64  // jobs that are done, dead or dropped
	Reason       string // of the last attempt that did not succeed
}

// Late are counts of permits, in the order of [shaper.LateReasons].
type Late [3]int64

// Totals returns the totals of all buckets that have counted something.
func (m *Metrics) Totals() map[string]Totals {
	if m == nil {
		return nil
	}
	all := map[string]Totals{}
	for _, c := range m.totalled() {
		c.mu.RLock()
		for bucket, made := range c.made {
			t := all[bucket]
			c.addTo(&t, bucket, made)
			t.Reason = m.lastReason(bucket)
			all[bucket] = t
		}
		c.mu.RUnlock()
	}
	return all
}

// TotalsOf returns the totals of one bucket.
func (m *Metrics) TotalsOf(bucket string) (t Totals) {
	if m == nil {
		return t
	}
	for _, c := range m.totalled() {
		c.mu.RLock()
		c.addTo(&t, bucket, c.made[bucket])
		c.mu.RUnlock()
	}
	t.Reason = m.lastReason(bucket)
	return t
}

// lastReason returns the reason of a bucket's last unsuccessful attempt, "" if there was none.
func (m *Metrics) lastReason(bucket string) string {
	reason, _ := m.attempts.reasons.Load(bucket)
	text, _ := reason.(string)
	return text
}

// totalled is a metric that contributes to the totals.
type totalled struct {
	*counters

	add func(t *Totals, label string, n int64) // adds the count of a series
}

func (m *Metrics) totalled() []totalled {
	return []totalled{
		{m.decisions, func(t *Totals, decision string, n int64) {
			switch decision {
			case decisionAdmitted:
				t.Arrived += n
			case decisionDuplicate:
			default:
				t.Refused += n
			}
		}},
		{m.schedules, func(t *Totals, outcome string, n int64) {
			if outcome == string(shaper.ScheduleFired) {
				t.Arrived += n
			}
		}},
		{m.departures, func(t *Totals, _ string, n int64) { t.Departed += n }},
		{m.succeeded, func(t *Totals, _ string, n int64) { t.Succeeded += n }},
		{m.returned, func(t *Totals, reason string, n int64) {
			if i := slices.Index(shaper.LateReasons(), reason); i >= 0 {
				t.Late[i] += n
			}
		}},
		{m.attempts, (*Totals).addAttempts},
	}
}

// addAttempts adds attempts of one outcome. A job that was not sent has had none.
func (t *Totals) addAttempts(outcome string, n int64) {
	switch outcome {
	case shaper.ResultRetry.String(), shaper.ResultDead.String():
		t.Failed += n
		t.Unsuccessful += n
	case shaper.ResultHeld.String(), shaper.ResultDropped.String():
		t.Unsuccessful += n
	case shaper.ResultDone.String(), shaper.ResultHandedOver.String():
	default:
		return
	}
	t.Attempts += n
	switch outcome {
	case shaper.ResultDone.String(), shaper.ResultDead.String(), shaper.ResultDropped.String():
		t.Gone += n
	}
}

// addTo adds the series of a bucket. The caller holds the lock.
func (c totalled) addTo(t *Totals, bucket string, made map[[2]string]struct{}) {
	for labels := range made {
		var value dto.Metric
		if c.vec.WithLabelValues(append([]string{bucket}, labels[:c.others]...)...).Write(&value) == nil {
			c.add(t, labels[0], int64(value.GetCounter().GetValue()))
		}
	}
}

// Lateness is a histogram of the lateness of departures, of all buckets: how many were at most so late, by the bound in seconds.
type Lateness map[float64]uint64

// Lateness returns the lateness of all departures since the process started.
func (m *Metrics) Lateness() Lateness {
	if m == nil {
		return nil
	}
	all := Lateness{}
	m.lateness.mu.RLock()
	defer m.lateness.mu.RUnlock()
	for bucket := range m.lateness.made {
		var value dto.Metric
		if h, ok := m.lateness.vec.WithLabelValues(bucket).(prometheus.Metric); !ok || h.Write(&value) != nil {
			continue
		}
		for _, b := range value.GetHistogram().GetBucket() {
			all[b.GetUpperBound()] += b.GetCumulativeCount()
		}
		all[math.Inf(1)] += value.GetHistogram().GetSampleCount()
	}
	return all
}

// P99 returns the 99th percentile of the lateness of departures since before, in seconds: the upper bound of its histogram bucket. It returns 0
// without departures. The last bucket is unbounded: then P99 returns the bound of the previous bucket.
func (l Lateness) P99(before Lateness) float64 {
	all := l[math.Inf(1)] - before[math.Inf(1)]
	if all == 0 {
		return 0
	}
	const of, hundredth = 99, 100
	least, last := math.Inf(1), 0.0
	for bound, n := range l {
		if math.IsInf(bound, 1) {
			continue
		}
		last = max(last, bound)
		if (n-before[bound])*hundredth >= all*of {
			least = min(least, bound)
		}
	}
	return min(least, last)
}
