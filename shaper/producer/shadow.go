package producer

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/shaper"
)

// shadowSample is the interval of log lines about one limit in shadow mode. A sample shows which callers would be refused; a line for each job would
// be as much as the traffic.
const shadowSample = 10 * time.Second

// shadowLog logs a sample of what limits in shadow mode would have refused. The zero value is ready.
type shadowLog struct {
	mu   sync.Mutex
	seen map[shadowOf]*shadowSeen
}

// shadowOf is a limit of a bucket. There are as many as in the configuration.
type shadowOf struct{ bucket, limit string }

type shadowSeen struct {
	next  time.Time
	since int // jobs since the last line
}

// note logs the decision of a limit in shadow mode about a job, if it is time for a line.
func (s *shadowLog) note(ctx context.Context, log *slog.Logger, d *admission.Decision, job *shaper.Job, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := shadowOf{job.Bucket, d.Limit}
	seen := s.seen[of]
	if seen == nil {
		if s.seen == nil {
			s.seen = make(map[shadowOf]*shadowSeen)
		}
		seen = &shadowSeen{}
		s.seen[of] = seen
	}
	if seen.since++; now.Before(seen.next) {
		return
	}
	log.InfoContext(ctx, "a limit in shadow mode would have refused", "bucket", job.Bucket, "limit", d.Limit, "would_have_refused", seen.since,
		"such_as", job.ID, "caller", job.Identity.Caller, "retry_after", d.RetryAfter.Round(time.Millisecond).String())
	seen.next, seen.since = now.Add(shadowSample), 0
}

// noteLimits logs and counts the decisions of limits on a job.
func (c *Client) noteLimits(ctx context.Context, t *entry) {
	for i := range t.receipt.Decisions {
		d := &t.receipt.Decisions[i]
		if d.Allowed && !d.WouldRefuse {
			continue
		}
		c.store.Metrics.CountLimit(t.job.Bucket, t.job.Identity.Caller, d)
		if d.WouldRefuse {
			c.shadows.note(ctx, c.store.Log, d, &t.job, time.Now())
		}
	}
}
