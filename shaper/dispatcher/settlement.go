package dispatcher

import (
	"cmp"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// settlement is the outcome of one lease on its way to Redis.
type settlement struct {
	job    *leased
	result shaper.Result
	delay  time.Duration
	last   string
	signal shaper.Signal
	reason string // a word, if the signal reports a problem
	alone  bool   // only this job is held, not its scope
	spent  bool   // it was the last attempt
	gone   bool   // dead, and its flow is to be disabled
	holds  bool   // its scope is held
	undone bool   // the job is sent once, and the attempt failed

	outcome  shaper.Outcome
	took     time.Duration
	charged  string // what the job charged to budgets and used of that: see settle.lua; "": nothing
	use      string // what it used of a model: see codec.UseText; "": nothing
	response string // the response to which both belong: see codec.ResponseText; "": none
	answered result
	attempt  *shaper.JobAttempt // nil if the job is done or returned
	line     string             // attempt as Redis keeps it, else ""
	cause    string             // of a dead letter
}

func (s *settlement) code() int {
	switch {
	case s.alone:
		return lua.HeldAlone
	case s.spent:
		return lua.Exhausted
	case s.gone:
		return lua.Gone
	case s.result == shaper.ResultDropped:
		return lua.Dropped
	case s.undone:
		return lua.Undone
	}
	return int(s.result)
}

// localWait is how long a job waits after a fault of this host, if its worker names no time.
const localWait = time.Second

// workerIsLate is the reason with which workers return jobs after [shaper.ErrLate].
const workerIsLate = "late"

// settlementOf returns the settlement of a job with an outcome.
func (s *settler) settlementOf(job *leased, outcome shaper.Outcome) *settlement {
	if outcome.Result == shaper.ResultReturned && outcome.Reason == workerIsLate {
		outcome.Reason = shaper.ReasonLateConnect
	}
	isDone := outcome.Result == shaper.ResultDone && (outcome.Answer == nil || !outcome.Answer.Broken)
	hold := s.holdOfDone(job, &outcome)
	one := &settlement{
		job: job, result: outcome.Result, signal: outcome.Signal, reason: "-",
		undone: job.Once && !job.isSelfDispatched() && !isDone && outcome.Result == shaper.ResultDone,
	}
	switch {
	case !s.HasFlows() && shaper.NamesReceiver(job.URL): // the response of its receiver does not apply to the other jobs
		one.signal, one.alone, hold = shaper.SignalNone, outcome.Result == shaper.ResultHeld, 0
	case one.signal != shaper.SignalAccepted:
		one.reason = codec.ReasonWord(outcome.Reason)
	case hold > 0:
		one.reason = shaper.ReasonNoneRemain
	}
	last := s.settles(one, &outcome, hold)
	one.last, one.charged = last.String(), chargedText(job, &outcome)
	if outcome.Result != shaper.ResultReturned {
		one.use, one.response = codec.UseText(outcome.Use, chargedTokens(job, &outcome)), codec.ResponseText(outcome.Response)
	}
	s.closeGate(one)
	one.outcome = outcome
	if !job.departed.IsZero() {
		one.took = time.Since(job.departed)
	}
	if one.result == shaper.ResultRetry || one.result == shaper.ResultDead || one.result == shaper.ResultHeld || outcome.Local {
		attempt := s.attemptOf(one)
		one.attempt, one.cause, one.line = &attempt, last.Cause, codec.AttemptLine(attempt)
	}
	one.answered = s.resultOf(one, last.Cause)
	return one
}

// settles decides how the lease ends, and returns what is kept of the response. hold is how long the scope waits if the job is done.
func (s *settler) settles(one *settlement, outcome *shaper.Outcome, hold time.Duration) shaper.LastResponse {
	job := one.job
	last := shaper.LastResponse{Status: outcome.Status, Reason: outcome.Reason, Detail: outcome.Detail, Body: outcome.Body}
	switch outcome.Result {
	case shaper.ResultRetry:
		tried := job.attempts + 1
		if tried >= job.maxAttempts {
			one.result, one.spent = shaper.ResultDead, true
			last.Cause = shaper.CauseExhausted
			break
		}
		policy := &s.Settings.Load().Retry
		if one.delay = min(outcome.RetryIn, policy.MaxBackoff); one.delay <= 0 {
			one.delay = policy.Delay(tried, outcome.RetryAfter, rand.Float64()) //nolint:gosec // jitter
		}
	case shaper.ResultHeld:
		one.delay = holdFor(s.Settings.Load(), outcome.RetryAfter)
	case shaper.ResultDead:
		last.Cause = shaper.CausePermanent
		if one.gone = s.isGone(job, outcome); one.gone {
			one.reason = codec.ReasonWord(outcome.Reason)
		}
	case shaper.ResultDropped:
		last = shaper.LastResponse{}
	case shaper.ResultDone:
		last, one.delay = shaper.LastResponse{}, hold // Redis keeps only the id of a delivered job
	case shaper.ResultReturned:
		if outcome.Local { // at the head it would be claimed again at once
			one.alone, one.delay = true, min(cmp.Or(outcome.RetryIn, localWait), s.Settings.Load().Retry.MaxBackoff) // the sweeper knows no longer wait
		} else {
			last = shaper.LastResponse{} // keep the response of the previous attempt
		}
	}
	if job.InDoubt && (outcome.Result == shaper.ResultHeld || one.result == shaper.ResultRetry) && !leavesDoubt(outcome.Status) {
		last = shaper.LastResponse{} // keep the response that left the doubt
	}
	return last
}

// holdOfDone returns the hold that a done job places on its scope. It also ends the outcome of a job that is sent once.
func (s *settler) holdOfDone(job *leased, outcome *shaper.Outcome) (hold time.Duration) {
	if outcome.Result == shaper.ResultDone && outcome.RetryAfter > 0 {
		hold = holdFor(s.Settings.Load(), outcome.RetryAfter)
	}
	if job.Once {
		hold = max(hold, s.endOnce(job, outcome))
	}
	return hold
}

// closeGate holds back the jobs of the scope that were claimed before the outcome.
func (s *settler) closeGate(one *settlement) {
	one.holds = one.delay > 0 && !one.alone && (one.result == shaper.ResultHeld || one.result == shaper.ResultDone)
	if one.holds {
		s.gate.close(s.scopeOf(one.job), time.Now().Add(one.delay))
	}
}

// leavesDoubt reports whether a failed attempt with this status (0: no response) may have taken effect: see lua/lib/claim_reply.lua.
func leavesDoubt(status int) bool {
	return status < 200 || status == 408 || status == 409 || status >= 500
}

// chargedText returns what a job charged to budgets and used of that; "" if it charged nothing.
func chargedText(job *leased, outcome *shaper.Outcome) string {
	switch {
	case job.charged == "":
		return ""
	case usesNothing(outcome):
		return job.charged + " " + usedNothing
	case outcome.Used == nil:
		return job.charged + " " + usedAsReserved
	}
	return job.charged + " " + outcome.Used.String()
}

// chargedTokens returns how many tokens a job charges to token budgets, or would charge if there were any.
func chargedTokens(job *leased, outcome *shaper.Outcome) int64 {
	charged, named := outcome.Used.Of(shaper.UnitTokens)
	if outcome.Used == nil {
		charged, named = job.Reserved.Of(shaper.UnitTokens)
	}
	if !named && outcome.Use != nil && !usesNothing(outcome) {
		return outcome.Use.Input + outcome.Use.Output
	}
	return charged
}

// jobArgs is the number of settle.lua's arguments per job.
const jobArgs = 3

// width returns the number of arguments of the job: one more if it has charged budgets, used a model, or names a response.
func (s *settlement) width() int {
	if s.charged == "" && s.use == "" && s.response == "" {
		return jobArgs
	}
	return jobArgs + 1
}

// usedText returns what the job charged and used, as an argument of settle.lua.
func (s *settlement) usedText(days *store.FlowSet) string {
	if s.use == "" {
		return s.charged + s.response
	}
	return s.charged + s.response + "@" + strconv.Itoa(days.Number(codec.UseDay(time.UnixMicro(s.job.claimedAt)))) + " " + s.use
}

func usesNothing(outcome *shaper.Outcome) bool {
	return outcome.Result == shaper.ResultReturned || outcome.Used != nil && len(outcome.Used) == 0
}

// used returns what the job used of the units that metrics count as reserved, as settle.lua charges it: see reservation.used.
func (s *settlement) used() shaper.Units {
	used := make(shaper.Units, len(s.job.counted))
	for unit, reserved := range s.job.counted {
		amount, named := s.outcome.Used.Of(unit)
		switch {
		case usesNothing(&s.outcome):
		case named:
			used[unit] = amount
		default:
			used[unit] = reserved
		}
	}
	return used
}

// What a job used of budgets, other than amounts: see lua/lib/reservation.lua.
const (
	usedNothing    = "0"
	usedAsReserved = "="
)

// isGone reports whether a response disables the flow of a job.
func (s *settler) isGone(job *leased, outcome *shaper.Outcome) bool {
	if !outcome.Gone || !s.HasFlows() {
		return false
	}
	switch s.Settings.Load().Breaker.OnGone {
	case shaper.GoneDisables:
		return true
	case shaper.GoneIsIgnored:
		return false
	default: // a flow of a host has receivers of many owners, and one that is gone does not affect the others
		return !shaper.NamesReceiver(job.URL) && job.Own != nil && job.Own.URL != ""
	}
}

// endOnce ends a job that is sent once: the outcome of its first attempt is its result, and the waiter decides what to do. The job waits out a hold
// if it does not expire before. Otherwise endOnce returns the hold, which still applies to the other jobs.
func (s *settler) endOnce(job *leased, outcome *shaper.Outcome) (hold time.Duration) {
	switch outcome.Result {
	case shaper.ResultRetry, shaper.ResultDead:
		outcome.Result = shaper.ResultDone
	case shaper.ResultDropped:
		if !job.isSelfDispatched() { // its sender sees the drop, and enqueues another job
			outcome.Result = shaper.ResultDone
		}
	case shaper.ResultHeld:
		hold = holdFor(s.Settings.Load(), outcome.RetryAfter)
		if job.expires > 0 && !job.Enqueued.Add(job.expires).After(s.clock.redis(time.Now()).Add(hold)) {
			outcome.Result = shaper.ResultDone
		}
	}
	return hold
}

// result is how a job ended, as settle.lua writes it. The zero value means that no client waits and the bucket keeps none.
type result struct {
	head   string
	body   []byte
	kept   bool   // the bucket keeps it
	waiter string // the channel of its waiter, "" none

	callback string // the first line of the job's body, if a callback is due
}

// resultOf returns the result of a job that has ended, if the bucket keeps it or a client waits for it.
func (s *settler) resultOf(one *settlement, cause string) result {
	state := shaper.StateDone
	switch one.result {
	case shaper.ResultDone:
		if one.undone {
			state = shaper.StateDropped
		}
	case shaper.ResultDead:
		state = shaper.StateDead
	case shaper.ResultDropped:
		state = shaper.StateDropped
	default:
		return result{}
	}
	settings, answer := s.Settings.Load().Results, one.outcome.Answer
	logs := settings.MaxBody == 0 // results are a log of deliveries
	if logs && one.outcome.Status != 0 {
		answer = &shaper.Answer{Status: one.outcome.Status, Cut: one.job.waiter != ""}
	}
	kept := (answer != nil || logs) && settings.Retention > 0
	callback, isSent := s.callbackLine(one.job, state)
	if callback != "" && !isSent && !kept && one.job.waiter == "" { // it is only counted: the same text for many jobs
		head, _ := codec.SealResult(&shaper.JobResult{State: state})
		return result{head: head, callback: callback}
	}
	if !kept && one.job.waiter == "" && callback == "" {
		return result{}
	}
	r := shaper.JobResult{
		Flow: one.job.Flow, Group: one.job.Group, Owner: codec.OwnerOf(one.job.mark), State: state, Answer: answer, Cause: cause, Reason: one.outcome.Reason, Detail: one.outcome.Detail, Attempts: one.job.attempts + 1,
		Enqueued: one.job.Enqueued, Took: one.took,
	}
	if !one.job.departed.IsZero() {
		r.Departed = s.clock.redis(one.job.departed)
	}
	head, body := codec.SealResult(&r)
	return result{head: head, body: body, kept: kept, waiter: one.job.waiter, callback: callback}
}

// callbackLine returns the line that settle.lua writes if a job has a callback or is in a bundle, else "". isTold reports whether a callback is sent,
// and not only the bundle's count updated.
func (s *settler) callbackLine(job *leased, state shaper.State) (line string, isSent bool) {
	settings := s.Settings.Load().Callbacks
	// without settings it is unknown whether there is a URL, and nothing is lost
	hasNoURL := settings.Bucket != "" && settings.URLOf(state, job.callbackURL, job.failureURL) == ""
	switch {
	case job.callback == "":
		return "", false
	case codec.IsOnlyCounted(job.callback), hasNoURL && codec.IsInBundle(job.callback):
		return codec.CountedLine(job.callback), false
	case hasNoURL:
		return "", false
	}
	return job.callback, true
}

// attemptOf returns what is kept of an attempt.
func (s *settler) attemptOf(one *settlement) shaper.JobAttempt {
	at := one.job.departed
	if at.IsZero() { // nothing was sent
		at = time.Now()
	}
	return codec.ShortAttempt(shaper.JobAttempt{
		At: s.clock.redis(at), Number: one.job.Number, Took: one.took,
		Status: one.outcome.Status, Reason: one.outcome.Reason, Detail: one.outcome.Detail, Result: one.result, Private: one.outcome.Private,
	})
}

// holdFor bounds the time that a downstream asked for. Without a longest hold, the bucket's longest backoff is the bound. It also applies to a job
// held alone, whose wait does not pass through lua/lib/downstream.lua.
func holdFor(b *shaper.Bucket, asked time.Duration) time.Duration {
	return min(max(asked, 0), cmp.Or(b.Adapt.MaxHold, b.Retry.MaxBackoff))
}
