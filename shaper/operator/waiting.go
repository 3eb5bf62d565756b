package operator

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

// Bounds of one read of what waits.
const (
	flowsSampled = 1000 // states of flows of one bucket
	flowsInLists = 200  // how many of these are examined for what holds them back, if the call is about several buckets
	flowsInRun   = 40   // of one run of the script: 3 ms
)

// waiting is what was read of a bucket's waiting jobs.
type waiting struct {
	flows  []waitingFlow
	looked int64 // flows that were examined; 0 in a bucket without flows
	known  int64 // flows that the bucket has
}

// waitingFlow is what waits in a flow, and what holds it back. A bucket without flows has one, without scopes.
type waitingFlow struct {
	name, group    string
	waits          int64 // all that wait
	later, retries int64 // of these, jobs for a later time, and jobs for another attempt
	nextDue        time.Time
	oldest         time.Time // when the oldest was enqueued; zero: not known
	own, ofGroup   *waitingScope
}

// waitingScope is the state that decides the next departure of a flow or a group.
type waitingScope struct {
	paused                             time.Time
	disabled                           *shaper.Disabled
	missing                            bool
	inFlight, maxInFlight              int64
	rate                               admission.Rate // of its own, or of all flows; zero: none
	rateFrees, quotaFrees, budgetFrees time.Time      // zero: at once
	quotas                             shaper.Quotas  // effective ones, if they hold it
	holdingQuota                       int64          // index of the one that does, from 1; 0: none
	budgets                            shaper.Budgets // effective ones, if they hold it
	holdingBudget                      int64          // index of the one that does, from 1; 0: none
	downstream                         *shaper.Downstream
}

// waitingRun is one run of inspect_waiting.lua.
type waitingRun struct {
	bucket int // index among the buckets of the call
	names  []string
	looked int64 // flows of the bucket that were examined, with the flows of this run
}

// lookAtWaiting reads what waits in buckets, in three or four round trips: in a bucket with flows, of at most 1000 random flows. After the first 40
// flows of each bucket it reads as many more as fit in about 25 % of the timeout of a call: a slow store, such as the embedded one, gives a smaller
// sample and keeps serving its claims.
func (o *Operator) lookAtWaiting(ctx context.Context, infos []BucketInfo) ([]waiting, error) {
	ctx, cancel := context.WithTimeout(ctx, o.store.Timeout)
	defer cancel()
	all := make([]waiting, len(infos))
	runs, err := o.sampleFlows(ctx, infos, all)
	if err != nil {
		return nil, err
	}
	began, next := time.Now(), 0
	for next < len(runs) && (next == 0 || runs[next].bucket > runs[next-1].bucket) {
		next++ // the first run of each bucket
	}
	for next > 0 {
		started := time.Now()
		if err := o.runAll(ctx, infos, all, runs[:next]); err != nil {
			return nil, err
		}
		each := max(time.Since(started)/time.Duration(next), time.Microsecond) // with its part of the round trip
		runs = runs[next:]
		next = min(len(runs), int(max(o.store.Timeout/4-time.Since(began), 0)/each))
	}
	return all, nil
}

func (o *Operator) runAll(ctx context.Context, infos []BucketInfo, all []waiting, runs []waitingRun) error {
	calls := make([]lua.Call, len(runs))
	for n, run := range runs {
		k := infos[run.bucket].keys
		args := []any{k.Levels}
		for _, name := range run.names {
			args = append(args, name)
		}
		calls[n] = lua.Call{Script: lua.InspectWaiting, Keys: k.Of(lua.InspectWaiting, run.names...), Args: args}
	}
	for n, result := range lua.RunAll(ctx, o.store.Redis, calls) {
		of, err := runs[n].bucket, result.Err
		if err == nil {
			err = all[of].read(&infos[of], runs[n].names, result.Reply)
		}
		if err != nil {
			return fmt.Errorf("look at what waits in bucket %q: %w", infos[of].Name, err)
		}
		all[of].looked = runs[n].looked
	}
	return nil
}

// sampleFlows returns the runs that read flows with waiting jobs, from a random sample of each bucket's flows. The first runs of all buckets come
// first.
func (o *Operator) sampleFlows(ctx context.Context, infos []BucketInfo, all []waiting) ([]waitingRun, error) {
	asked := make([]*redis.KeyValueSliceCmd, len(infos))
	lua.Spread(ctx, o.store.Redis, len(infos), func(n int) string { return infos[n].keys.Flows() }, func(some []int) {
		pipe := o.store.Redis.Pipeline()
		for _, n := range some {
			if infos[n].waits() > 0 && infos[n].HasFlows {
				asked[n] = pipe.HRandFieldWithValues(ctx, infos[n].keys.Flows(), flowsSampled)
			}
		}
		if pipe.Len() > 0 {
			_, _ = pipe.Exec(ctx) // the commands hold the errors
		}
	})
	most := flowsSampled
	if len(infos) > 1 {
		most = flowsInLists
	}
	of := make([][]waitingRun, len(infos))
	for i := range infos {
		switch {
		case infos[i].waits() == 0:
		case asked[i] == nil:
			of[i] = []waitingRun{{bucket: i, names: []string{""}}}
		default:
			states, err := asked[i].Result()
			if err != nil && !errors.Is(err, redis.Nil) {
				return nil, fmt.Errorf("look at the flows of bucket %q: %w", infos[i].Name, err)
			}
			all[i].known = max(infos[i].Flows, int64(len(states)))
			of[i], all[i].looked = runsOf(i, states, most)
		}
	}
	var runs []waitingRun
	for n := range (most + flowsInRun - 1) / flowsInRun {
		for i := range of {
			if n < len(of[i]) {
				runs = append(runs, of[i][n])
			}
		}
	}
	return runs, nil
}

// runsOf returns the runs for flows with waiting jobs, at most most of them, and how many flows were examined for it.
func runsOf(bucket int, states []redis.KeyValue, most int) (runs []waitingRun, looked int64) {
	found := 0
	for _, state := range states {
		if found == most {
			break
		}
		looked++
		if s := codec.ParseFlowState(state.Value); s.Waiting() == 0 {
			continue
		}
		if found%flowsInRun == 0 {
			runs = append(runs, waitingRun{bucket: bucket})
		}
		found++
		last := &runs[len(runs)-1]
		last.names, last.looked = append(last.names, state.Key), looked
	}
	if len(runs) > 0 {
		runs[len(runs)-1].looked = looked
	}
	return runs, looked
}

// isSample reports whether some flows were not examined.
func (w *waiting) isSample() bool { return w.looked < w.known }

// read parses the reply of inspect_waiting.lua about flows of these names.
func (w *waiting) read(info *BucketInfo, names []string, reply any) error {
	r := lua.NewReader(reply)
	_, offset := r.Int(), r.Int()
	for _, name := range names {
		f := waitingFlow{name: name, waits: r.Int(), later: r.Int(), retries: r.Int(), nextDue: codec.InstantOf(r.Int()), oldest: codec.InstantOf(r.Int())}
		if info.HasFlows {
			f.own = readScope(r, offset, info)
		}
		if info.HasGroups {
			f.group, f.name, _ = codec.SplitPath(f.name)
			f.ofGroup = readScope(r, offset, info)
		}
		w.flows = append(w.flows, f)
	}
	return r.Err()
}

func readScope(r *lua.Reader, offset int64, info *BucketInfo) *waitingScope {
	s := &waitingScope{paused: codec.InstantOf(r.Int())}
	if since, reason, found := strings.Cut(r.Text(), "/"); found {
		micros, _ := strconv.ParseInt(since, 10, 64)
		s.disabled = &shaper.Disabled{Since: codec.InstantOf(micros), Reason: reason}
	}
	s.missing, s.inFlight, s.maxInFlight = r.Int() == 1, r.Int(), r.Int()
	if count, per := r.Int(), r.Int(); count > 0 {
		s.rate = admission.Rate{Count: count, Per: lua.Microseconds(per), Unit: admission.UnitRequests}
	}
	s.rateFrees, s.quotaFrees, s.budgetFrees = codec.InstantOf(r.Int()), codec.InstantOf(r.Int()), codec.InstantOf(r.Int())
	configured := s.rate
	if configured.IsZero() {
		configured = info.rateInForce()
	}
	s.downstream = codec.ParseDownstream(r.Text(), offset, configured)
	s.quotas, s.holdingQuota = codec.ReadQuotas(r.Text()), r.Int()
	s.budgets, s.holdingBudget = codec.ReadBudgets(r.Text()), r.Int()
	return s
}

// waits returns how many jobs of the bucket wait, including those for a later time.
func (b *BucketInfo) waits() int64 { return max(b.Waiting+b.Later, 0) }
