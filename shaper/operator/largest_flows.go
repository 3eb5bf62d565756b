package operator

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/tundish-io/tundish/shaper/internal/codec"
)

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
