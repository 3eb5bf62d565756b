package producer

import (
	"slices"
	"strings"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/shaper"
)

// spread gives the caller of a refused job its own time to retry: see [admission.Spread]. The jobs of one call share one place, because they are
// retried together.
func (b *producerBucket) spread(t *entry, refusal *shaper.Refusal, by []admission.Decision) {
	key, interval := b.lineOf(t, refusal, by)
	if refusal.RetryAfter <= 0 || interval <= 0 {
		return
	}
	t.call.mu.Lock()
	defer t.call.mu.Unlock()
	delay, ok := t.call.spread[key]
	if !ok {
		delay = b.spreads.Delay(key, refusal.RetryAfter, interval, time.Now())
		if t.call.spread == nil {
			t.call.spread = map[string]time.Duration{}
		}
		t.call.spread[key] = delay
	}
	refusal.Spread = delay
}

// lineOf returns the key under which a refused job waits with other refused jobs, and the interval at which one of them is admitted. The interval is
// 0 if unknown.
func (b *producerBucket) lineOf(t *entry, refusal *shaper.Refusal, by []admission.Decision) (key string, interval time.Duration) {
	settings := b.Settings.Load()
	switch refusal.Reason {
	case shaper.ReasonLimit:
		return t.limitKey(by), slowest(max(t.job.Cost, 1), by)
	case shaper.ReasonBucketFull, shaper.ReasonShed, shaper.ReasonWaitTooLong:
		return string(refusal.Reason), settings.Rate.Interval()
	case shaper.ReasonFlowFull:
		return string(refusal.Reason) + " " + t.job.Group + " " + t.job.Flow, max(settings.Rate.Interval(), settings.Flow.Rate.Interval())
	case shaper.ReasonGroupFull:
		return string(refusal.Reason) + " " + t.job.Group, max(settings.Rate.Interval(), settings.Group.Rate.Interval())
	}
	return "", 0
}

// slowest returns the longest interval at which one of the limits admits a job of a cost.
func slowest(cost int64, by []admission.Decision) (interval time.Duration) {
	for _, d := range by {
		interval = max(interval, time.Duration(cost)*d.Rate.Interval())
	}
	return interval
}

// limitKey returns the key by which the first limit that refused a job counts it.
func (t *entry) limitKey(by []admission.Decision) string {
	for i, key := range strings.Split(t.counted, " ") {
		if i < len(t.limits) && slices.ContainsFunc(by, func(d admission.Decision) bool { return d.Limit == t.limits[i].Name }) {
			return t.limits[i].Name + " " + key
		}
	}
	return t.counted
}
