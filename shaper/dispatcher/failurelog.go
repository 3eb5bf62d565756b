package dispatcher

import (
	"context"
	"sync"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

const (
	failureLogEvery = 10 * time.Second // at most one line for each flow
	failureLogFlows = 1024             // flows that are told apart
)

// failureLog samples the log of failed attempts. It logs the first one of a flow at once, and then one in
// failureLogEvery. Flows above failureLogFlows share one turn. The zero value is ready. It is safe for concurrent use.
type failureLog struct {
	mu     sync.Mutex
	flows  map[string]*failures
	others failures
	tidied time.Time
}

// failures are those of one flow.
type failures struct {
	logged time.Time
	more   int // since then
}

// note takes in a failed attempt of a flow. It reports whether to log it, and how many attempts of the flow failed
// since the last line.
func (l *failureLog) note(flow string, now time.Time) (logs bool, more int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.flows[flow]
	if f == nil {
		f = l.add(flow, now)
	}
	if !f.logged.IsZero() && now.Sub(f.logged) < failureLogEvery {
		f.more++
		return false, 0
	}
	more = f.more
	f.logged, f.more = now, 0
	return true, more
}

func (l *failureLog) add(flow string, now time.Time) *failures {
	if len(l.flows) >= failureLogFlows && now.Sub(l.tidied) >= time.Second {
		l.tidied = now
		for name, f := range l.flows {
			if now.Sub(f.logged) >= failureLogEvery {
				delete(l.flows, name)
			}
		}
	}
	if len(l.flows) >= failureLogFlows {
		return &l.others
	}
	if l.flows == nil {
		l.flows = map[string]*failures{}
	}
	f := &failures{}
	l.flows[flow] = f
	return f
}

// attemptOf is what is kept of an attempt.
func (d *bucketLoop) attemptOf(s *settlement) shaper.JobAttempt {
	at := s.job.departed
	if at.IsZero() { // nothing was sent
		at = time.Now()
	}
	return codec.ShortAttempt(shaper.JobAttempt{
		At: d.clock.redis(at), Number: s.job.Number, Took: s.took,
		Status: s.outcome.Status, Reason: s.outcome.Reason, Detail: s.outcome.Detail, Result: s.result,
	})
}

// logOutcome logs an attempt that failed: a sample of those after which the job waits for another one, and every dead letter.
func (d *bucketLoop) logOutcome(ctx context.Context, s *settlement) {
	path := d.pathOf(s.job)
	switch s.result {
	case shaper.ResultDead:
		d.logDead(ctx, s.job.ID, path, s.cause, s.job.attempts+1, *s.attempt)
	case shaper.ResultRetry, shaper.ResultHeld:
		if logs, more := d.failures.note(path, time.Now()); logs {
			d.log.InfoContext(ctx, "an attempt failed", append(d.namesOf(s.job.ID, path),
				"number", s.attempt.Number, "result", s.result.String(), "reason", s.attempt.Reason, "status", s.attempt.Status,
				"detail", s.attempt.Detail, "wait", s.delay.Round(time.Millisecond), "unlogged", more)...)
		}
	}
}

// pathOf is the flow of a job as the scripts name it.
func (d *bucketLoop) pathOf(job *leased) string { return codec.PathOf(d.Levels(), job.Group, job.Flow) }

// logDead logs a dead letter. It does so for every one. Of one that died without an answer it names none.
func (d *bucketLoop) logDead(ctx context.Context, id, path, cause string, attempts int, seen shaper.JobAttempt) {
	fields := append(d.namesOf(id, path), "cause", cause)
	if seen.Reason != "" {
		fields = append(fields, "reason", seen.Reason)
	}
	if seen.Status != 0 {
		fields = append(fields, "status", seen.Status)
	}
	fields = append(fields, "attempts", attempts)
	if seen.Detail != "" {
		fields = append(fields, "detail", seen.Detail)
	}
	d.log.WarnContext(ctx, "a job is dead", fields...)
}

// Why a job was found dead, as claim.lua and expire.lua answer.
const (
	claimExpired = 0
	claimTooOld  = -1
)

// foundDead takes in a job of which a script made a dead letter while it waited.
func (d *bucketLoop) foundDead(why int64, id, path string, attempts int) {
	cause := shaper.CauseExpired
	if why == claimTooOld {
		cause = shaper.CauseMaxAge
	}
	d.logDead(d.life, id, path, cause, attempts, shaper.JobAttempt{})
	d.store.Metrics.CountGivenUp(d.Name, cause, 1)
}

// namesOf are the names of a job for the log. path is its flow as the scripts name it.
func (d *bucketLoop) namesOf(id, path string) []any {
	switch d.Levels() {
	case codec.LevelsFlows:
		return []any{"job", id, "flow", path}
	case codec.LevelsGroups:
		group, flow, _ := codec.SplitPath(path)
		return []any{"job", id, "group", group, "flow", flow}
	}
	return []any{"job", id}
}
