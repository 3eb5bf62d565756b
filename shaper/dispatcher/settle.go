package dispatcher

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/lua/coalesce"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// Sizes of one settle script.
const (
	settleBatch      = 256
	settleBatchBytes = 256 << 10

	// chargedWeight is the weight of an outcome that corrects the budgets of its bucket only, manyChargedWeight of one in a bucket with flows or in a
	// pool. With every slice of two budgets charged at each level, 64 outcomes of the first kind take a script 3 ms, and so do 18 of the second.
	chargedWeight     = settleBatchBytes / 64
	manyChargedWeight = settleBatchBytes / 18

	// usedWeight is the weight of an outcome that used a model: 128 of them take a script 3 ms.
	usedWeight = settleBatchBytes / 128

	// keptWeight is the weight of an outcome whose result is kept in a bucket with flows. If each drops the oldest result of another flow, 64 of them
	// take a script 5 to 8 ms.
	keptWeight = settleBatchBytes / 32
)

// settler writes the outcomes of a leaseHolder's jobs to Redis. Concurrent outcomes share a script.
type settler struct {
	*bucketConn
	held      *leaseHolder
	deaths    *deaths
	callbacks *callbackMover // nil: this process moves no callbacks
	queue     coalesce.Queue[*settlement]
	failures  failureLog
	gate      gate
}

func newSettler(held *leaseHolder, deaths *deaths, callbacks *callbackMover) *settler {
	s := &settler{bucketConn: held.bucketConn, held: held, deaths: deaths, callbacks: callbacks}
	s.queue.Max, s.queue.MaxWeight, s.queue.Weigh, s.queue.Send = settleBatch, settleBatchBytes, s.weigh, s.send
	return s
}

// weigh returns the weight of an outcome, which bounds the bytes and the run time of a script.
func (s *settler) weigh(one *settlement) int {
	weight := len(one.last) + len(one.line) + len(one.answered.head) + len(one.answered.body) + len(one.answered.callback)
	switch {
	case one.charged == "":
	case s.HasFlows() || s.Keys.Member != "":
		weight += manyChargedWeight
	default:
		weight += chargedWeight
	}
	if one.use != "" || one.response != "" {
		weight += usedWeight
	}
	if one.answered.kept && s.HasFlows() {
		weight += keptWeight
	}
	return weight
}

// settle queues the outcome of a job; concurrent outcomes are sent together.
func (s *settler) settle(job *leased, outcome shaper.Outcome) {
	s.queue.Add(s.settlementOf(job, outcome))
}

// compareOutcomes orders settlements by everything except the job.
func compareOutcomes(a, b *settlement) int {
	return cmp.Or(cmp.Compare(a.job.claim, b.job.claim), cmp.Compare(a.job.batch, b.job.batch), cmp.Compare(a.job.epoch, b.job.epoch), cmp.Compare(a.code(), b.code()),
		cmp.Compare(a.delay, b.delay), cmp.Compare(a.last, b.last), cmp.Compare(a.signal, b.signal), cmp.Compare(a.reason, b.reason), cmp.Compare(a.line, b.line), cmp.Compare(a.width(), b.width()))
}

// isAlike reports whether two outcomes share their arguments. Outcomes with results never do.
func isAlike(a, b *settlement) bool {
	return a.answered.head == "" && b.answered.head == "" && compareOutcomes(a, b) == 0
}

// send writes outcomes until Redis has taken them, in as many calls as the bounds of KEYS and ARGV require.
func (s *settler) send(batch []*settlement) (after func()) {
	slices.SortStableFunc(batch, compareOutcomes) // equal outcomes stay together in the parts
	_ = lua.InParts(batch, len(batch), s.sendSome)
	return nil
}

// sendSome writes outcomes in one call, and repeats it until Redis has taken them. It gives up only when the dispatcher's life ends: the leases then
// expire, and the jobs are delivered again. It returns an error only if the call is too large and has several outcomes.
func (s *settler) sendSome(batch []*settlement) error {
	args, flows, days := s.callOf(batch)
	keys := s.Keys.WithUse(s.Keys.More(s.Keys.Fixed(nil, lua.Settle), lua.Settle, flows, nil), days)
	if err := lua.CheckSize(keys, args); err != nil && len(batch) > 1 {
		return err
	}
	wait, first := minFaultWait, time.Now()
	for resent := false; ; resent = true {
		began := time.Now()
		r, err := s.store.RunConfigured(s.life, s.Bucket, lua.Settle, keys, args...)
		if err == nil {
			s.outage.worked(s.life, began, s.lease)
			s.settled(batch, r, resent)
			s.logScopes(flows, r)
			return nil
		}
		if len(batch) > 1 && lua.IsTooLarge(err) {
			return err
		}
		gone := s.SettlesOnly() && errors.Is(err, store.ErrNotConfigured) && time.Since(first) > s.lease
		if gone || errors.Is(err, shaper.ErrTagChanged) { // no bucket moves while a dispatcher may extend a lease: these leases had expired
			s.log.Warn("leases were lost before their outcome came, and the bucket has changed its pool since: the jobs may be delivered twice",
				"count", len(batch), "error", err)
			s.store.Metrics.CountLost(s.Name, len(batch))
			s.forget(batch)
			return nil
		}
		s.outage.failed(s.life, began, fmt.Errorf("settle in bucket %q: %w", s.Name, err))
		if !sleep(s.life, wait/2+rand.N(wait/2)) { //nolint:gosec // jitter
			s.log.Error("outcomes were not written: the jobs will be delivered again", "count", len(batch), "error", err)
			s.forget(batch)
			return nil
		}
		wait = min(2*wait, maxFaultWait)
	}
}

// callOf returns the arguments of settle.lua for outcomes in the order of compareOutcomes, the flows whose keys it touches, and the days whose use of
// models it counts. Outcomes that differ only in the job share their arguments: most are done, in a few claims.
func (s *settler) callOf(batch []*settlement) (args []any, names, dayNames []string) {
	var flows, days store.FlowSet
	outcomes := make([]any, 0, 9*len(batch))
	for i, one := range batch {
		if i == 0 || !isAlike(batch[i-1], one) { //nolint:gosec // not of the first one
			n := 1
			for n < len(batch)-i && isAlike(one, batch[i+n]) {
				n++
			}
			if one.width() > jobArgs {
				n = -n
			}
			outcomes = append(outcomes, n, one.job.epoch, one.job.owner(), one.code(), one.delay.Microseconds(), one.last,
				int(one.signal), one.reason, one.job.claimedAt, one.line,
				one.answered.head, one.answered.body, store.BoolArg(one.answered.kept), one.answered.waiter, one.answered.callback)
		}
		// pointers: a string would be allocated again as an argument
		outcomes = append(outcomes, &one.job.ID, &one.job.mark, flows.Number(s.pathOf(one.job)))
		if one.width() > jobArgs {
			outcomes = append(outcomes, one.usedText(&days))
		}
	}
	return slices.Concat([]any{store.WakeChannel, s.Keys.Name, s.Levels(), s.Keys.Member, len(flows.Names)}, flows.Args(), outcomes), flows.Names, days.Names
}

// settled processes the reply of settle.lua. resent says that the reply to an earlier call may have been lost.
func (s *settler) settled(batch []*settlement, r *lua.Reader, resent bool) {
	lost := 0
	for _, one := range batch {
		code := r.Int()
		if one.holds {
			s.gate.taken(s.scopeOf(one.job), s.clock.redis(time.Now()).UnixMicro())
		}
		if one.answered.callback != "" {
			s.callbacks.wake()
		}
		if code == lua.SettledHeld && one.attempt != nil { // only if the attempt failed
			one.result = shaper.ResultHeld
		}
		if one.result == shaper.ResultDead {
			s.deaths.note(1)
		}
		if code == lua.NotLeased && !resent {
			switch {
			case one.job.isSelfDispatched() && !one.job.isStarted():
				one.result = shaper.ResultHandedOver
			case one.outcome.Reason != reasonNotStarted: // otherwise Redis had not started it
				lost++
			}
			continue
		}
		if code == lua.SettledBefore {
			one.outcome.Used = shaper.Units{}
		}
		if len(one.job.counted) > 0 {
			s.store.Metrics.CountUsed(s.Name, one.job.counted, one.used())
		}
		s.logOutcome(one)
	}
	if r.Err() != nil {
		s.log.Error("script settle gave a short answer", "error", r.Err())
	}
	s.forget(batch)
	if lost > 0 {
		s.store.Metrics.CountLost(s.Name, lost)
		s.log.Warn("leases were lost before their outcome came: the jobs may be delivered twice", "count", lost)
	}
}

// forget counts attempts, and releases their jobs. Only the reply of Redis shows whether an attempt failed or was held.
func (s *settler) forget(batch []*settlement) {
	succeeded, last := 0, ""
	for _, one := range batch {
		s.store.Metrics.CountOutcome(s.Name, one.result, one.outcome, one.took, one.job.traceID)
		// The jobs of a batch are one request. They have one owner, and follow each other: see compareOutcomes.
		if owner := one.job.owner(); one.result == shaper.ResultDone && (one.job.batch == 0 || owner != last) {
			succeeded, last = succeeded+1, owner
		}
		s.held.forget(one.job)
	}
	s.store.Metrics.CountSucceeded(s.Name, succeeded)
}
