package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/lua/batch"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// Sizes of one settle script.
const (
	settleBatch      = 256
	settleBatchBytes = 256 << 10
)

// settlement is the outcome of one lease on its way to Redis.
type settlement struct {
	job    *leased
	result shaper.Result
	delay  time.Duration
	last   string
	signal shaper.Signal
	reason string // a word, where the signal says that something is wrong
	alone  bool   // the job is held, and nothing else
	spent  bool   // it was the last attempt
	gone   bool   // dead, and its flow is to be disabled

	outcome  shaper.Outcome
	took     time.Duration
	answered result
	attempt  *shaper.JobAttempt // unless it is done or returned
	line     string             // the same as Redis keeps it, else ""
	cause    string             // of a dead letter
}

// Results that only settle.lua has.
const (
	heldAlone = 6
	exhausted = 7 // dead after the last attempt, but not by the probe of a breaker, which is no attempt
	flowGone  = 8 // dead, and its flow is disabled
	dropped   = 9
)

// settledHeld is its answer for a job that it held although its attempt failed: that was the probe of a breaker.
const settledHeld = 2

func (s *settlement) code() int {
	switch {
	case s.alone:
		return heldAlone
	case s.spent:
		return exhausted
	case s.gone:
		return flowGone
	case s.result == shaper.ResultDropped:
		return dropped
	}
	return int(s.result)
}

// compareOutcomes orders settlements by all but the job.
func compareOutcomes(a, b *settlement) int {
	return cmp.Or(cmp.Compare(a.job.claim, b.job.claim), cmp.Compare(a.job.batch, b.job.batch), cmp.Compare(a.job.epoch, b.job.epoch), cmp.Compare(a.code(), b.code()),
		cmp.Compare(a.delay, b.delay), cmp.Compare(a.last, b.last), cmp.Compare(a.signal, b.signal), cmp.Compare(a.reason, b.reason), cmp.Compare(a.line, b.line))
}

// isAlike reports whether two outcomes stand together. Those with results do not.
func isAlike(a, b *settlement) bool {
	return a.answered.head == "" && b.answered.head == "" && compareOutcomes(a, b) == 0
}

// sendSettlements writes outcomes until Redis has taken them. It gives up only
// when the dispatcher's life ends; the leases then run out and the jobs are
// delivered again.
func (d *bucketLoop) sendSettlements(batch []*settlement) (after func()) {
	var flows store.FlowSet
	// Outcomes that are alike but for the job stand together: most are done, in some claims.
	slices.SortStableFunc(batch, compareOutcomes)
	outcomes := make([]any, 0, 9*len(batch))
	keys := d.Keys.Fixed(nil, lua.Settle)
	for i, s := range batch {
		if i == 0 || !isAlike(batch[i-1], s) {
			n := 1
			for n < len(batch)-i && isAlike(s, batch[i+n]) {
				n++
			}
			outcomes = append(outcomes, n, s.job.epoch, s.job.owner(), s.code(), s.delay.Microseconds(), s.last,
				int(s.signal), s.reason, s.job.claimedAt, s.line,
				s.answered.head, s.answered.body, store.BoolArg(s.answered.kept), s.answered.waiter, s.answered.callback)
		}
		// Pointers: a string would be made an object of its own, as an argument.
		outcomes = append(outcomes, &s.job.ID, &s.job.mark, flows.Number(codec.PathOf(d.Levels(), s.job.Group, s.job.Flow)))
	}
	keys = d.Keys.More(keys, lua.Settle, flows.Names, nil)
	args := slices.Concat([]any{store.WakeChannel, d.Name, d.Levels(), d.Keys.Member, len(flows.Names)}, flows.Args(), outcomes)
	ctx := d.life
	wait, first := minFaultWait, time.Now()
	for resent := false; ; resent = true {
		began := time.Now()
		r, err := d.store.RunConfigured(ctx, d.Bucket, lua.Settle, keys, args...)
		if err == nil {
			d.outage.worked(ctx, began, d.lease)
			d.settled(ctx, batch, r, resent)
			d.logScopes(ctx, flows.Names, r)
			return nil
		}
		gone := d.IsLent() && errors.Is(err, store.ErrNotConfigured) && time.Since(first) > d.lease
		if gone || errors.Is(err, shaper.ErrTagChanged) { // a bucket with leases changes no pool, so these were lost before
			d.log.WarnContext(ctx, "leases were lost before their outcome came, and the bucket has changed its pool since: the jobs may be delivered twice",
				"count", len(batch), "error", err)
			d.store.Metrics.CountLost(d.Name, len(batch))
			d.count(batch...)
			d.forgetHeld(batch)
			return nil
		}
		d.outage.failed(ctx, began, fmt.Errorf("settle in bucket %q: %w", d.Name, err))
		if !sleep(ctx, wait/2+rand.N(wait/2)) { //nolint:gosec // jitter
			d.log.ErrorContext(ctx, "outcomes were not written: the jobs will be delivered again", "count", len(batch), "error", err)
			d.count(batch...)
			d.forgetHeld(batch)
			return nil
		}
		wait = min(2*wait, maxFaultWait)
	}
}

func (d *bucketLoop) settled(ctx context.Context, batch []*settlement, r *lua.Reader, resent bool) {
	lost := 0
	for _, s := range batch {
		code := r.Int()
		if s.answered.callback != "" {
			d.someToTell()
		}
		if code == settledHeld && s.attempt != nil { // only of one that failed
			s.result = shaper.ResultHeld
		}
		d.count(s)
		if s.result == shaper.ResultDead {
			d.someDied(1)
		}
		if code == 0 && !resent {
			if s.outcome.Reason != reasonNotStarted { // else Redis had not started it
				lost++
			}
			continue
		}
		d.logOutcome(ctx, s)
	}
	if r.Err() != nil {
		d.log.ErrorContext(ctx, "script settle gave a short answer", "error", r.Err())
	}
	d.forgetHeld(batch)
	if lost > 0 {
		d.store.Metrics.CountLost(d.Name, lost)
		d.log.WarnContext(ctx, "leases were lost before their outcome came: the jobs may be delivered twice", "count", lost)
	}
}

// count counts attempts. Whether one failed or was held is known when Redis has taken its outcome.
func (d *bucketLoop) count(batch ...*settlement) {
	for _, s := range batch {
		d.store.Metrics.CountOutcome(d.Name, s.result, s.outcome, s.took)
	}
}

func (d *bucketLoop) forgetHeld(batch []*settlement) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range batch {
		d.guard.leave(s.job)
		if d.held[s.job.ID] == s.job { // not a later claim of the same job
			delete(d.held, s.job.ID)
		}
		if s.job.ended != nil {
			close(s.job.ended)
		}
	}
}

// settlerOf is the queue in which outcomes of a loop travel.
func settlerOf(d *bucketLoop) batch.Queue[*settlement] {
	return batch.Queue[*settlement]{
		Max: settleBatch, MaxWeight: settleBatchBytes, Send: d.sendSettlements,
		Weigh: func(s *settlement) int {
			return len(s.last) + len(s.line) + len(s.answered.head) + len(s.answered.body) + len(s.answered.callback)
		},
	}
}

// settle hands over the outcome of a job; it travels with others of the moment.
func (d *bucketLoop) settle(job *leased, outcome shaper.Outcome) {
	d.settler.Add(d.settlementOf(job, outcome))
}

// isGone reports whether an answer disables the flow of a job.
func (d *bucketLoop) isGone(job *leased, outcome *shaper.Outcome) bool {
	if !outcome.Gone || !d.HasFlows() {
		return false
	}
	switch d.Settings.Load().Breaker.OnGone {
	case shaper.GoneDisables:
		return true
	case shaper.GoneIsIgnored:
		return false
	default: // a flow of a host holds the receivers of many owners: one that is gone says nothing of the others
		return !shaper.NamesReceiver(job.URL) && job.Own != nil && job.Own.URL != ""
	}
}

// settlementOf is what becomes of a job after an outcome.
func (d *bucketLoop) settlementOf(job *leased, outcome shaper.Outcome) *settlement {
	var hold time.Duration // that a job leaves behind which is done
	if job.once {
		hold = d.endOnce(job, &outcome)
	}
	s := &settlement{job: job, result: outcome.Result, signal: outcome.Signal, reason: "-"}
	switch {
	case !d.HasFlows() && shaper.NamesReceiver(job.URL): // what its receiver says is no word on the others
		s.signal, s.alone = shaper.SignalNone, outcome.Result == shaper.ResultHeld
	case s.signal != shaper.SignalAccepted:
		s.reason = codec.ReasonWord(outcome.Reason)
	}
	last := shaper.LastResponse{Status: outcome.Status, Reason: outcome.Reason, Detail: outcome.Detail, Body: outcome.Body}
	switch outcome.Result {
	case shaper.ResultRetry:
		tried := job.attempts + 1
		if tried >= job.maxAttempts {
			s.result, s.spent = shaper.ResultDead, true
			last.Cause = shaper.CauseExhausted
			break
		}
		s.delay = d.Settings.Load().Retry.Delay(tried, outcome.RetryAfter, rand.Float64()) //nolint:gosec // jitter
	case shaper.ResultHeld:
		s.delay = holdFor(d.Settings.Load(), outcome.RetryAfter)
	case shaper.ResultDead:
		last.Cause = shaper.CausePermanent
		if s.gone = d.isGone(job, &outcome); s.gone {
			s.reason = codec.ReasonWord(outcome.Reason)
		}
	case shaper.ResultDropped:
		last = shaper.LastResponse{}
	case shaper.ResultDone:
		last, s.delay = shaper.LastResponse{}, hold // Redis keeps nothing of a delivered job but its id
	case shaper.ResultReturned:
		last = shaper.LastResponse{} // what the attempt before it saw stays
	}
	s.last = last.String()
	s.outcome = outcome
	if !job.departed.IsZero() {
		s.took = time.Since(job.departed)
	}
	if s.result == shaper.ResultRetry || s.result == shaper.ResultDead || s.result == shaper.ResultHeld {
		attempt := d.attemptOf(s)
		s.attempt, s.cause, s.line = &attempt, last.Cause, codec.AttemptLine(attempt)
	}
	s.answered = d.resultOf(s, last.Cause)
	return s
}
