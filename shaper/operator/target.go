package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// target is a flow or a group that an operator reads or changes.
type target struct {
	bucket string
	what   int        // one of the targets
	keys   store.Keys // of the bucket
	name   string     // in Redis
	label  []any      // for the log
}

// The kinds of targets, as control_flow.lua has them.
const (
	targetFlow        = codec.LevelsFlows
	targetFlowInGroup = codec.LevelsGroups
	targetGroup       = 3
)

// states and settings return the keys of the hashes for targets of the same kind.
func (t *target) states() string {
	if t.what == targetGroup {
		return t.keys.Groups()
	}
	return t.keys.Flows()
}

func (t *target) settings() string {
	if t.what == targetGroup {
		return t.keys.GroupSettings()
	}
	return t.keys.FlowSettings()
}

// turnQueue returns the key of the turn queue of a target of this name.
func (t *target) turnQueue(name string) string {
	if t.what == targetGroup {
		return t.keys.DueGroups()
	}
	return t.keys.DueOf(name)
}

func (t *target) scriptKeys(store.Keys) []string {
	if t.what == targetGroup {
		return t.keys.OfGroup(t.name)
	}
	return t.keys.Of(lua.ControlFlow, t.name)
}

// flowOf finds a flow; group is nil if none is named.
func (o *Operator) flowOf(ctx context.Context, bucket string, group *string, flow string) (target, error) {
	if err := validFlow(bucket, "flow", flow); err != nil {
		return target{}, err
	}
	k, err := o.keysOf(ctx, bucket)
	if err != nil {
		return target{}, err
	}
	return flowTarget(bucket, k, group, flow)
}

// flowTarget returns the target for a flow of a bucket with these keys; group is nil if none is named.
func flowTarget(bucket string, k store.Keys, group *string, flow string) (target, error) {
	var err error
	t := target{bucket: bucket, what: targetFlow, keys: k, name: flow, label: []any{"flow", flow}}
	switch levels := k.Levels; {
	case levels == codec.LevelsNone:
		err = ErrNoFlows
	case levels == codec.LevelsFlows && group != nil:
		err = ErrNoGroups
	case levels == codec.LevelsGroups && group == nil:
		err = ErrGroupNeeded
	case levels == codec.LevelsGroups:
		if err := validFlow(bucket, "group", *group); err != nil {
			return target{}, err
		}
		t.what, t.name, t.label = targetFlowInGroup, codec.FlowPath(*group, flow), []any{"group", *group, "flow", flow}
	}
	if err != nil {
		return target{}, fmt.Errorf("bucket %q: %w", bucket, err)
	}
	return t, nil
}

// groupOf finds a group.
func (o *Operator) groupOf(ctx context.Context, bucket, group string) (target, error) {
	if err := validFlow(bucket, "group", group); err != nil {
		return target{}, err
	}
	k, err := o.keysOf(ctx, bucket)
	if err != nil {
		return target{}, err
	}
	if k.Levels != codec.LevelsGroups {
		return target{}, fmt.Errorf("bucket %q: %w", bucket, ErrNoGroups)
	}
	return target{bucket: bucket, what: targetGroup, keys: k, name: group, label: []any{"group", group}}, nil
}

func validFlow(bucket, what, name string) error {
	if len(name) > shaper.MaxFlowBytes || !utf8.ValidString(name) {
		return &InvalidChangeError{bucket, fmt.Errorf("%s: want at most %d bytes of UTF-8", what, shaper.MaxFlowBytes)}
	}
	return nil
}

// seen is the state of a flow or a group.
type seen struct {
	PartInfo
	name       string // in Redis
	downstream *shaper.Downstream
	mustExist  bool // its bucket requires flows to exist
	keeps      bool // its bucket keeps jobs of disabled flows
}

// The setting by which a bucket requires its flows to exist, and how many fields lookAt reads before it.
const (
	fieldMustExist = "flow_must_exist"
	fieldsBefore   = 5
)

// lookAt reads the state of targets of the same kind, in one round trip; two if flows or groups have budgets or quotas.
func (o *Operator) lookAt(ctx context.Context, t target, names []string) ([]seen, error) {
	if len(names) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, o.store.Timeout)
	defer cancel()
	pipe := o.store.Redis.Pipeline()
	states, own := pipe.HMGet(ctx, t.states(), names...), pipe.HMGet(ctx, t.settings(), names...)
	pace := pipe.HMGet(ctx, t.keys.Pace(), "offset", "drain")
	rates := pipe.HMGet(ctx, t.keys.Conf(), "rate_count", "rate_per", "flow_rate_count", "flow_rate_per", store.FieldTimetable, fieldMustExist, store.FieldKeep,
		"flow_budgets", "group_budgets", "own_budgets", "flow_quotas", "group_quotas")
	turnsOf := map[string][]string{} // by turn queue: the names that may be in it
	for _, name := range names {
		turnsOf[t.turnQueue(name)] = append(turnsOf[t.turnQueue(name)], name)
	}
	asked := make(map[string]*redis.FloatSliceCmd, len(turnsOf))
	for queue, some := range turnsOf {
		asked[queue] = pipe.ZMScore(ctx, queue, some...)
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("bucket %q: read its flows: %w", t.bucket, err)
	}
	turns := make(map[string]float64, len(names)) // 0 without a turn
	for queue, some := range turnsOf {
		for i, turn := range asked[queue].Val() {
			turns[some[i]] = turn
		}
	}
	ahead, _ := pace.Val()[0].(string)
	offset, _ := strconv.ParseInt(ahead, 10, 64) // 0 without one
	stored, hasHours := storedNumbers(rates.Val()[:4]), pace.Val()[1] != nil || rates.Val()[4] != nil
	infos, some := make([]seen, len(names)), hasAny(rates.Val()[fieldsBefore+2:])
	for i, name := range names {
		text, _ := states.Val()[i].(string)
		state := codec.ParseFlowState(text)
		info := seen{name: name, mustExist: rates.Val()[fieldsBefore] == "1", keeps: rates.Val()[fieldsBefore+1] == "1", PartInfo: PartInfo{Bucket: t.bucket, FlowNumbers: FlowNumbers{state.Waiting(), state.InFlight}}}
		info.Known = states.Val()[i] != nil || own.Val()[i] != nil
		text, _ = own.Val()[i].(string)
		var err error
		if info.Own, err = codec.ParseOwnFlow(text); err != nil {
			return nil, fmt.Errorf("bucket %q: flow %q: %w", t.bucket, name, err)
		}
		some = some || len(info.Own.Quotas) > 0
		if turn := turns[name]; turn > 0 {
			info.Turn = time.UnixMicro(int64(turn) - offset)
		}
		if state.Downstream != "" && hasHours {
			hasHours = false // it is asked once
			if buckets, err := o.BucketInfos(ctx, t.bucket); err == nil {
				rate := buckets[0].rateInForce()
				stored[0], stored[1] = rate.Count, rate.Per.Microseconds()
			}
		}
		info.downstream = codec.ParseDownstream(state.Downstream, offset, configuredRate(info.Own.Rate, stored))
		infos[i] = info
	}
	if some {
		return infos, o.addAllowances(ctx, t, infos)
	}
	return infos, nil
}

// hasAny reports whether one of some fields of a hash exists and is not empty.
func hasAny(values []any) bool {
	return slices.ContainsFunc(values, func(value any) bool { return value != nil && value != "" })
}

// configuredRate returns the rate of a flow without its downstream: its own, else the rate of all flows, else the effective rate of the bucket.
func configuredRate(own admission.Rate, stored []int64) admission.Rate {
	for i := len(stored) - 2; own.IsZero() && i >= 0; i -= 2 {
		if stored[i] > 0 {
			own = admission.Rate{Count: stored[i], Per: lua.Microseconds(stored[i+1]), Unit: admission.UnitRequests}
		}
	}
	return own
}

// storedNumbers parses fields of a hash; a missing one is 0.
func storedNumbers(values []any) []int64 {
	numbers := make([]int64, len(values))
	for i, value := range values {
		text, _ := value.(string)
		numbers[i], _ = strconv.ParseInt(text, 10, 64) // 0 without one
	}
	return numbers
}

func badCursor(bucket string) error {
	return &InvalidChangeError{bucket, &shaper.FieldError{Field: "cursor", Reason: "is none of ours: give the one of the last answer, or none"}}
}

// Parts of a listing: first flows or groups with jobs, then flows or groups with
// settings and no jobs.
const (
	partStates   = "j"
	partSettings = "s"
)

// list returns names of targets of the same kind that match, some of them, from a cursor on.
func (o *Operator) list(ctx context.Context, t target, match, cursor string, limit int) (names []string, next string, err error) {
	part, at := partStates, uint64(0)
	if cursor != "" {
		text := ""
		if part, text = cursor[:1], cursor[1:]; part != partStates && part != partSettings {
			return nil, "", &InvalidChangeError{t.bucket, fmt.Errorf("cursor: %q is none of ours", cursor)}
		}
		if at, err = strconv.ParseUint(text, 10, 64); err != nil {
			return nil, "", &InvalidChangeError{t.bucket, fmt.Errorf("cursor: %q is none of ours", cursor)}
		}
	}
	key := t.states()
	if part == partSettings {
		key = t.settings()
	}
	ctx, cancel := context.WithTimeout(ctx, o.store.Timeout)
	defer cancel()
	pairs, at, err := o.store.Redis.HScan(ctx, key, at, match, int64(min(max(limit, 1), 1000))).Result()
	if err != nil {
		return nil, "", fmt.Errorf("bucket %q: list its flows: %w", t.bucket, err)
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		names = append(names, pairs[i])
	}
	if part == partSettings {
		if names, err = o.without(ctx, t.states(), names); err != nil {
			return nil, "", fmt.Errorf("bucket %q: list its flows: %w", t.bucket, err)
		}
	}
	switch {
	case at != 0:
		next = part + strconv.FormatUint(at, 10)
	case part == partStates:
		next = partSettings + "0"
	}
	return names, next, nil
}

// without returns the names that are no fields of a hash.
func (o *Operator) without(ctx context.Context, key string, names []string) ([]string, error) {
	if len(names) == 0 {
		return nil, nil
	}
	there, err := o.store.Redis.HMGet(ctx, key, names...).Result()
	if err != nil {
		return nil, err
	}
	var others []string
	for i, name := range names {
		if there[i] == nil {
			others = append(others, name)
		}
	}
	return others, nil
}

// budgetsInRun is how many flows or groups a run of inspect_budgets.lua reads: as many as a claim of a bucket with budgets names.
const budgetsInRun = 32

// addAllowances adds to flows or groups what is charged to their budgets, and how many departures count for their quotas. One round trip. A part with
// a charge, or with a departure that counts, becomes known.
func (o *Operator) addAllowances(ctx context.Context, t target, infos []seen) error {
	var calls []lua.Call
	for first := 0; first < len(infos); first += budgetsInRun {
		args, names := []any{0}, []string{}
		for _, info := range infos[first:min(first+budgetsInRun, len(infos))] {
			args, names = append(args, info.name), append(names, info.name)
		}
		flows, groups := names, []string(nil)
		if t.what == targetGroup {
			args[0], flows, groups = 1, nil, names
		}
		calls = append(calls, lua.Call{Script: lua.InspectBudgets, Keys: t.keys.OfGroups(lua.InspectBudgets, flows, groups), Args: args})
	}
	next := infos
	for n, result := range lua.RunAll(ctx, o.store.Redis, calls) {
		if result.Err != nil {
			return fmt.Errorf("bucket %q: read the budgets and quotas of its flows: %w", t.bucket, result.Err)
		}
		r := lua.NewReader(result.Reply)
		_ = r.Int() // the server's time: no budget or quota is reported as free earlier
		for range calls[n].Args[1:] {
			next[0].Budgets = codec.ReadBudgetUse(r.Text())
			next[0].Quotas = codec.ReadQuotaUse(r.Text())
			for _, use := range next[0].Budgets {
				next[0].Known = next[0].Known || use.Charged > 0 || use.Open > 0
			}
			for _, use := range next[0].Quotas {
				next[0].Known = next[0].Known || use.Used > 0
			}
			next = next[1:]
		}
		if err := r.Err(); err != nil {
			return fmt.Errorf("bucket %q: script inspect_budgets: %w", t.bucket, err)
		}
	}
	return nil
}
