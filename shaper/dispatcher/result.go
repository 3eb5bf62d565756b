package dispatcher

import (
	"cmp"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

// result is how a job ended, as settle.lua writes it. The zero value says that nobody wants to know.
type result struct {
	head   string
	body   []byte
	kept   bool   // the bucket keeps it
	waiter string // the channel of who waits for it, "" nobody

	callback string // the first line of the job's body, if its end is to be told
}

// answerBytes is how much of the answer to a job is wanted: none where it is not kept and nobody is to hear of it.
func (d *bucketLoop) answerBytes(isTold bool) int64 {
	settings := d.Settings.Load().Results
	if !isTold && settings.Retention == 0 {
		return 0
	}
	return settings.MaxBody
}

// endOnce ends a job that is sent once: what its first attempt came to is its result, and whoever waits for that decides what to do.
// A hold is waited for if the job does not expire before. If it does, the hold is returned: it is one for the others all the same.
func (d *bucketLoop) endOnce(job *leased, outcome *shaper.Outcome) (hold time.Duration) {
	switch outcome.Result {
	case shaper.ResultRetry, shaper.ResultDead, shaper.ResultDropped:
		outcome.Result = shaper.ResultDone
	case shaper.ResultHeld:
		hold = holdFor(d.Settings.Load(), outcome.RetryAfter)
		if job.expires > 0 && !job.Enqueued.Add(job.expires).After(d.clock.redis(time.Now()).Add(hold)) {
			outcome.Result = shaper.ResultDone
		}
	}
	return hold
}

// resultOf is the result of a job that has ended with an outcome, if the bucket keeps it or somebody is to hear of it.
func (d *bucketLoop) resultOf(s *settlement, cause string) result {
	state := shaper.StateDone
	switch s.result {
	case shaper.ResultDone:
	case shaper.ResultDead:
		state = shaper.StateDead
	case shaper.ResultDropped:
		state = shaper.StateDropped
	default:
		return result{}
	}
	kept := s.outcome.Answer != nil && d.Settings.Load().Results.Retention > 0
	callback := d.callbackLine(s.job, state)
	if !kept && s.job.waiter == "" && callback == "" {
		return result{}
	}
	r := shaper.JobResult{
		Flow: s.job.Flow, Group: s.job.Group, Owner: codec.OwnerOf(s.job.mark), State: state, Answer: s.outcome.Answer, Cause: cause, Reason: s.outcome.Reason, Detail: s.outcome.Detail, Attempts: s.job.attempts + 1,
		Enqueued: s.job.Enqueued, Took: s.took,
	}
	if !s.job.departed.IsZero() {
		r.Departed = d.clock.redis(s.job.departed)
	}
	head, body := codec.SealResult(&r)
	return result{head: head, body: body, kept: kept, waiter: s.job.waiter, callback: callback}
}

// holdFor bounds the time that a downstream asked for, also of a job that is held alone: its wait does not pass through
// lua/lib/downstream.lua. A bucket that has no longest hold bounds it as any wait.
func holdFor(b *shaper.Bucket, asked time.Duration) time.Duration {
	return min(max(asked, 0), cmp.Or(b.Adapt.MaxHold, b.Retry.MaxBackoff))
}
