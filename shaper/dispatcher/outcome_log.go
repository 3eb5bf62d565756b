package dispatcher

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

const (
	failureLogEvery = 10 * time.Second // at most one line for each flow
	failureLogFlows = 1024             // flows with their own sampling
)

// failureLog samples the log of failed attempts: it logs the first failure of a flow at once, and then one per failureLogEvery. Flows beyond
// failureLogFlows are sampled together. The zero value is ready. It is safe for concurrent use.
type failureLog struct {
	mu     sync.Mutex
	flows  map[string]*failures
	others failures
	tidied time.Time
}

// failures is the sampling state of one flow.
type failures struct {
	logged time.Time
	more   int // since then
}

// note records a failed attempt of a flow. It returns whether to log it, and how many failures of the flow were not logged since the last line.
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

// logOutcome logs failed attempts: a sample of the retried ones, and every dead letter.
func (s *settler) logOutcome(one *settlement) {
	path := s.pathOf(one.job)
	switch one.result {
	case shaper.ResultDead:
		attempt := *one.attempt
		attempt.Detail = cmp.Or(one.outcome.Private, attempt.Detail)
		s.logDead(one.job.ID, path, one.cause, one.job.attempts+1, attempt)
	case shaper.ResultReturned:
		s.logLate(one, path)
	case shaper.ResultRetry, shaper.ResultHeld:
		if logs, more := s.failures.note(path, time.Now()); logs {
			s.log.Info("an attempt failed", append(s.namesOf(one.job.ID, path),
				"number", one.attempt.Number, "result", one.result.String(), "reason", one.attempt.Reason, "status", one.attempt.Status,
				"detail", cmp.Or(one.outcome.Private, one.attempt.Detail), "wait", one.delay.Round(time.Millisecond), "unlogged", more)...)
		}
	}
}

// logLate logs a sample of the permits that were returned late.
func (s *settler) logLate(one *settlement, path string) {
	reason := one.outcome.Reason
	if !slices.Contains(shaper.LateReasons(), reason) {
		return
	}
	if logs, more := s.failures.note("\x00"+reason, time.Now()); logs {
		s.log.Warn("a permit came back unused: the job departed too late for its slot, and waits for another one",
			append(s.namesOf(one.job.ID, path), "reason", reason, "unlogged", more)...)
	}
}

// pathOf returns the flow of a job as the scripts name it.
func (c *bucketConn) pathOf(job *leased) string { return codec.PathOf(c.Levels(), job.Group, job.Flow) }

// logDead logs a dead letter. Every one is logged. If the job died without a response, the line names none.
func (c *bucketConn) logDead(id, path, cause string, attempts int, seen shaper.JobAttempt) {
	fields := append(c.namesOf(id, path), "cause", cause)
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
	c.log.Warn("a job is dead", fields...)
}

// foundDead counts and logs a waiting job that a script made a dead letter.
func (c *bucketConn) foundDead(why int64, id, path string, attempts int) {
	cause := shaper.CauseExpired
	switch why {
	case lua.ClaimTooOld:
		cause = shaper.CauseMaxAge
	case lua.ClaimOverBudget:
		cause = shaper.CauseCostImpossible
	}
	c.logDead(id, path, cause, attempts, shaper.JobAttempt{})
	c.store.Metrics.CountGivenUp(c.Name, cause, 1)
}

// namesOf returns the log fields that name a job. path is its flow as the scripts name it.
func (c *bucketConn) namesOf(id, path string) []any {
	if !c.HasFlows() {
		return []any{"job", id}
	}
	return append([]any{"job", id}, c.flowLabel(path)...)
}

// logScopes logs the flows that a batch's outcomes disabled, and the circuit breakers that they opened or closed. Only the reply of the script that
// made the change reports it, so one dispatcher logs it.
func (s *settler) logScopes(flows []string, r *lua.Reader) {
	for r.Err() == nil && r.Left() > 0 {
		what, nth, reason := r.Int(), r.Int(), r.Text()
		if r.Err() != nil || nth < 0 || int(nth) > len(flows) {
			s.log.Error("script settle gave an answer of another form", "error", r.Err())
			return
		}
		label := s.scopeLabel(flows, nth)
		switch what {
		case lua.BecameDisabled:
			s.deaths.some.Store(true) // the next patrol makes dead letters of the waiting jobs
			s.log.Error("a flow was disabled: its receiver is gone, or has not worked for too long; it sends nothing until it is enabled",
				append(label, "reason", reason)...)
		case lua.BreakerOpened:
			s.log.Warn("a circuit breaker opened: its receiver does not work; only a probe leaves now and then", append(label, "reason", reason)...)
		case lua.BreakerClosed:
			s.log.Warn("a circuit breaker closed: its receiver works again", label...)
		}
	}
}

// scopeLabel returns the log fields of a scope: the nth of flows, or with 0 the pool, or none for the bucket.
func (c *bucketConn) scopeLabel(flows []string, nth int64) []any {
	switch {
	case nth > 0:
		return c.flowLabel(flows[nth-1])
	case c.Settings.Load().Adapt.Scope == shaper.ScopePool:
		return []any{"pool", c.Keys.Pool}
	default:
		return nil
	}
}

// flowLabel returns the log fields of a flow, from its name in Redis.
func (c *bucketConn) flowLabel(name string) []any {
	if c.Levels() != codec.LevelsGroups {
		return []any{"flow", name}
	}
	group, flow, _ := codec.SplitPath(name)
	return []any{"group", group, "flow", flow}
}
