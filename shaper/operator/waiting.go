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

// Bounds of one look at what waits.
const (
	flowsSampled = 1000 // states of flows of one bucket
	flowsInLists = 200  // of these asked what holds them back, where several buckets are asked about
	flowsInRun   = 40   // of one run of the script: 3 ms
)

// waiting is what was seen of a bucket's jobs that wait.
type waiting struct {
	flows  []waitingFlow
	looked int64 // flows that were looked at; 0 of a bucket without flows
	known  int64 // flows that the bucket has
}

// waitingFlow is what waits of a flow, and what holds it back. A bucket without flows has one, without scopes.
type waitingFlow struct {
	name, group    string
	waits          int64 // all that wait
	later, retries int64 // of these for a later time; of these for another attempt
	nextDue        time.Time
	oldest         time.Time // when the oldest came; zero: not known
	own, ofGroup   *waitingScope
}

// waitingScope is what a flow, or a group, says of its next departure.
type waitingScope struct {
	paused                             time.Time
	disabled                           *shaper.Disabled
	missing                            bool
	inFlight, maxInFlight              int64
	rate                               admission.Rate // of its own, or of all flows; zero: none
	rateFrees, quotaFrees, budgetFrees time.Time      // zero: at once
	downstream                         *shaper.Downstream
}

// lookAtWaiting reads what waits in buckets, in two round trips: of a bucket with flows, of 1000 flows at most, by chance.
// A run of the script looks at 40 flows.
func (o *Operator) lookAtWaiting(ctx context.Context, infos []BucketInfo) ([]waiting, error) {
	ctx, cancel := context.WithTimeout(ctx, o.store.Timeout)
	defer cancel()
	all := make([]waiting, len(infos))
	names, err := o.sampleFlows(ctx, infos, all)
	if err != nil {
		return nil, err
	}
	var calls []lua.Call
	var of []int
	for i := range infos {
		k := infos[i].keys
		for first := 0; first < len(names[i]); first += flowsInRun {
			some := names[i][first:min(first+flowsInRun, len(names[i]))]
			args := []any{k.Levels}
			for _, name := range some {
				args = append(args, name)
			}
			calls, of = append(calls, lua.Call{Script: lua.InspectWaiting, Keys: k.Of(lua.InspectWaiting, some...), Args: args}), append(of, i)
		}
	}
	for n, result := range lua.RunAll(ctx, o.store.Redis, calls) {
		i := of[n]
		err := result.Err
		if err == nil {
			err = all[i].read(&infos[i], calls[n].Args[1:], result.Reply)
		}
		if err != nil {
			return nil, fmt.Errorf("look at what waits in bucket %q: %w", infos[i].Name, err)
		}
	}
	return all, nil
}

// sampleFlows returns the flows of each bucket to look at: those with waiting jobs, of a number of flows by chance.
func (o *Operator) sampleFlows(ctx context.Context, infos []BucketInfo, all []waiting) ([][]string, error) {
	names := make([][]string, len(infos))
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
	for i := range infos {
		switch {
		case infos[i].waits() == 0:
		case asked[i] == nil:
			names[i] = []string{""}
		default:
			states, err := asked[i].Result()
			if err != nil && !errors.Is(err, redis.Nil) {
				return nil, fmt.Errorf("look at the flows of bucket %q: %w", infos[i].Name, err)
			}
			all[i].known = max(infos[i].Flows, int64(len(states)))
			for _, state := range states {
				if len(names[i]) == most {
					break
				}
				all[i].looked++
				if s := codec.ParseFlowState(state.Value); s.Waiting() > 0 {
					names[i] = append(names[i], state.Key)
				}
			}
		}
	}
	return names, nil
}

// isSample reports whether some flows were not looked at.
func (w *waiting) isSample() bool { return w.looked < w.known }

// read takes in an answer of inspect_waiting.lua about flows of these names.
func (w *waiting) read(info *BucketInfo, names []any, reply any) error {
	r := lua.NewReader(reply)
	_, offset := r.Int(), r.Int()
	for _, name := range names {
		f := waitingFlow{waits: r.Int(), later: r.Int(), retries: r.Int(), nextDue: codec.InstantOf(r.Int()), oldest: codec.InstantOf(r.Int())}
		f.name, _ = name.(string)
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
	return s
}

// waits is how many jobs of the bucket wait, also those for a later time.
func (b *BucketInfo) waits() int64 { return max(b.Waiting+b.Later, 0) }
