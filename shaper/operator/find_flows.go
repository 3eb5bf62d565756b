package operator

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

// Bounds of one search of flows: a longer one continues from a cursor.
const (
	maxFlowsFound  = 1000 // in one reply
	maxFlowsLooked = 20_000
	flowChunk      = 1000 // of one command
)

// FlowOrder is an order of flows; "" is none.
type FlowOrder string

// ByWaiting sorts flows by their waiting jobs, most first.
const ByWaiting FlowOrder = "waiting"

// FlowFilter selects flows. The zero value selects all, in no order.
type FlowFilter struct {
	Group   *string // "" is a group too
	Match   string  // a part of the flow's name
	Failing bool    // disabled, held by their downstream, with a circuit breaker that is not closed, or with a last SignalFailed
	Order   FlowOrder
}

// FindFlows returns flows that match the filter, of those with jobs or own settings: about limit (clamped to 1 to 1000), or none, from the cursor of
// an earlier call on, "" at first; the cursor at the end is "". It may miss flows that appear or disappear meanwhile, and return some twice. Without
// an order it examines at most 20,000 flows, in three round trips for each thousand. With an order it examines all flows each time, in one round trip
// for each thousand, and leaves out flows without jobs.
func (b Bucket) FindFlows(ctx context.Context, filter FlowFilter, cursor string, limit int) (infos []FlowInfo, next string, err error) {
	limit = min(max(limit, 1), maxFlowsFound)
	switch {
	case filter.Order != "" && filter.Order != ByWaiting:
		return nil, "", &InvalidChangeError{b.name, &shaper.FieldError{Field: "sort", Reason: fmt.Sprintf("%q: want %s", filter.Order, ByWaiting)}}
	case filter.Order == ByWaiting:
		return b.fullestFlows(ctx, &filter, cursor, limit)
	case !filter.Failing && filter.Match == "":
		return b.op.flows(ctx, b.name, filter.Group, cursor, limit)
	}
	for looked := 0; looked < maxFlowsLooked && len(infos) < limit; looked += flowChunk {
		var some []FlowInfo
		if some, cursor, err = b.op.flows(ctx, b.name, filter.Group, cursor, flowChunk); err != nil {
			return nil, "", err
		}
		now := time.Now()
		for i := range some {
			if filter.matches(&some[i], now) {
				infos = append(infos, some[i])
			}
		}
		if cursor == "" {
			break
		}
	}
	return infos, cursor, nil
}

// matches reports whether the filter matches a flow, apart from its group.
func (f *FlowFilter) matches(info *FlowInfo, now time.Time) bool {
	return strings.Contains(info.Flow, f.Match) && (!f.Failing || info.isFailing(now))
}

// isFailing reports whether a flow's receiver keeps it from sending, or fails: its last response was a [shaper.SignalFailed]. A receiver that
// responds with 401 works: the response concerns only the job.
func (f *FlowInfo) isFailing(now time.Time) bool {
	d := f.Downstream
	return f.Own.Disabled != nil || d != nil && (d.HeldUntil.After(now) || d.Breaker != shaper.BreakerClosed || d.Failures > 0)
}

// fullFlow is a flow by its name in Redis, and the number of its waiting jobs.
type fullFlow struct {
	waiting int64
	name    string
}

// compare sorts fuller flows first.
func (f fullFlow) compare(g fullFlow) int {
	return cmp.Or(cmp.Compare(g.waiting, f.waiting), strings.Compare(f.name, g.name))
}

func (f fullFlow) cursor() string {
	return strconv.FormatInt(f.waiting, 10) + "." + base64.RawURLEncoding.EncodeToString([]byte(f.name))
}

// fullestFlows returns the flows with the most waiting jobs, after the flow of the cursor.
func (b Bucket) fullestFlows(ctx context.Context, filter *FlowFilter, cursor string, limit int) (infos []FlowInfo, next string, err error) {
	var after *fullFlow
	if cursor != "" {
		count, text, found := strings.Cut(cursor, ".")
		waiting, err := strconv.ParseInt(count, 10, 64)
		name, err2 := base64.RawURLEncoding.DecodeString(text)
		if !found || err != nil || err2 != nil {
			return nil, "", badCursor(b.name)
		}
		after = &fullFlow{waiting, string(name)}
	}
	t, match, err := b.op.flowsTarget(ctx, b.name, filter.Group)
	if err != nil {
		return nil, "", err
	}
	if filter.Match != "" { // of a bucket with groups it matches their names too: see means
		match = cmp.Or(match, "*") + globEscape(filter.Match) + "*"
	}
	for {
		// The state of a failing flow has more than numbers. The call reads more flows than wanted, because some may have recovered.
		most := limit
		if filter.Failing || filter.Match != "" {
			most = maxFlowsFound
		}
		found, isAll, err := b.op.fullest(ctx, t, match, after, most, filter.Failing)
		if err != nil || len(found) == 0 {
			return infos, "", err
		}
		names := make([]string, len(found))
		for i := range found {
			names[i] = found[i].name
		}
		some, err := b.op.flowInfos(ctx, t, names)
		if err != nil {
			return nil, "", err
		}
		for i := range some {
			if after = &found[i]; !filter.matches(&some[i], time.Now()) {
				continue
			}
			if infos = append(infos, some[i]); len(infos) == limit {
				if isAll && i == len(some)-1 {
					return infos, "", nil
				}
				return infos, after.cursor(), nil
			}
		}
		if isAll {
			return infos, "", nil
		}
	}
}

// fullest reads the states of all flows, and returns at most most flows with the most waiting jobs after a given one. isAll reports whether there are
// no more.
func (o *Operator) fullest(ctx context.Context, t target, match string, after *fullFlow, most int, failing bool) (found []fullFlow, isAll bool, err error) {
	isAll = true
	keep := func() {
		slices.SortFunc(found, fullFlow.compare)
		found = slices.CompactFunc(found, func(a, b fullFlow) bool { return a.name == b.name }) // HSCAN returns some twice
		if len(found) > most {
			found, isAll = found[:most], false
		}
	}
	for at := uint64(0); ; {
		if err := ctx.Err(); err != nil {
			return nil, false, err
		}
		var pairs []string
		if pairs, at, err = o.scanStates(ctx, t, match, at); err != nil {
			return nil, false, fmt.Errorf("bucket %q: list its flows: %w", t.bucket, err)
		}
		for i := 0; i+1 < len(pairs); i += 2 {
			state := codec.ParseFlowState(pairs[i+1])
			f := fullFlow{state.Waiting(), pairs[i]}
			if f.waiting > 0 && (after == nil || after.compare(f) < 0) && (!failing || state.Downstream != "") {
				found = append(found, f)
			}
		}
		if at == 0 {
			keep()
			return found, isAll, nil
		}
		if len(found) > 2*most+flowChunk {
			keep()
		}
	}
}

func (o *Operator) scanStates(ctx context.Context, t target, match string, at uint64) ([]string, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, o.store.Timeout)
	defer cancel()
	return o.store.Redis.HScan(ctx, t.states(), at, match, flowChunk).Result()
}

// LargestFlows returns the flows with the most waiting jobs, of a part of the flows: about look of them (1 to 20,000). The part begins at the cursor of
// an earlier call, "" at first; the cursor at the end is "". It returns at most limit (1 to 1000), fullest first, and leaves out flows without waiting jobs.
// It always takes one round trip for each thousand flows that it examines, and two more. [Bucket.FindFlows] examines all flows.
func (b Bucket) LargestFlows(ctx context.Context, group *string, cursor string, look, limit int) (infos []FlowInfo, looked int, next string, err error) {
	at := uint64(0)
	if cursor != "" {
		if at, err = strconv.ParseUint(cursor, 10, 64); err != nil || at == 0 {
			return nil, 0, "", badCursor(b.name)
		}
	}
	t, match, err := b.op.flowsTarget(ctx, b.name, group)
	if err != nil {
		return nil, 0, "", err
	}
	var found []fullFlow
	for looked < min(max(look, 1), maxFlowsLooked) {
		var pairs []string
		if pairs, at, err = b.op.scanStates(ctx, t, match, at); err != nil {
			return nil, 0, "", fmt.Errorf("bucket %q: look at its flows: %w", b.name, err)
		}
		for i := 0; i+1 < len(pairs); i += 2 {
			looked++
			if waiting := codec.ParseFlowState(pairs[i+1]).Waiting(); waiting > 0 {
				found = append(found, fullFlow{waiting, pairs[i]})
			}
		}
		if at == 0 {
			break
		}
	}
	if at > 0 {
		next = strconv.FormatUint(at, 10)
	}
	slices.SortFunc(found, fullFlow.compare)
	found = slices.CompactFunc(found, func(a, b fullFlow) bool { return a.name == b.name }) // HSCAN returns some twice
	names := make([]string, min(len(found), min(max(limit, 1), maxFlowsFound)))
	for i := range names {
		names[i] = found[i].name
	}
	if len(names) > 0 {
		infos, err = b.op.flowInfos(ctx, t, names)
	}
	return infos, looked, next, err
}
