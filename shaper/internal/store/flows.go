package store

import (
	"context"
	"fmt"

	"github.com/tundish-io/tundish/lua"
)

// FlowSet is the set of flows that one script call touches, in the order in which their lists are declared.
type FlowSet struct {
	Names   []string
	numbers map[string]int // from 1 on
}

// Number returns the flow's number in the set. It adds the flow if it is missing.
func (g *FlowSet) Number(flow string) int {
	if n, ok := g.numbers[flow]; ok {
		return n
	}
	if g.numbers == nil {
		g.numbers = make(map[string]int, 1)
	}
	g.Names = append(g.Names, flow)
	g.numbers[flow] = len(g.Names)
	return len(g.Names)
}

// Args returns the names, as arguments of a script.
func (g *FlowSet) Args() []any {
	args := make([]any, len(g.Names))
	for i, name := range g.Names {
		args[i] = name
	}
	return args
}

// MaxFlowSet is how many flows one script touches at most.
const MaxFlowSet = 256

// Limits of one script call that reads the flows of jobs: the flow is in the job's body.
const (
	flowsOfBatch = 500
	flowsOfBytes = 1 << 20
)

// FlowsOf returns the flow of each job, from its header, and "" for an id that has no job. It calls no server if the bucket has no flows.
func (s *Store) FlowsOf(ctx context.Context, b *Bucket, ids ...string) ([]string, error) {
	flows := make([]string, 0, len(ids))
	if !b.HasFlows() {
		return flows[:len(ids)], nil
	}
	for most := flowsOfBatch; len(flows) < len(ids); {
		some := ids[len(flows):min(len(ids), len(flows)+most)]
		args := make([]any, 0, 2+len(some))
		args = append(args, flowsOfBytes, b.Levels())
		for _, id := range some {
			args = append(args, id)
		}
		reply, err := s.Run(ctx, lua.FlowsOf, b.Keys.Of(lua.FlowsOf), args...)
		if len(some) > 1 && lua.IsTooLarge(err) {
			most = len(some) / 2 //nolint:mnd // half
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("bucket %q: %w", b.Name, err)
		}
		r := lua.NewReader(reply)
		if r.Left() == 0 || r.Left() > len(some) {
			return nil, fmt.Errorf("bucket %q: script flows_of answered %d flows of %d jobs", b.Name, r.Left(), len(some))
		}
		for r.Left() > 0 {
			flows = append(flows, r.Text())
		}
		if r.Err() != nil {
			return nil, fmt.Errorf("bucket %q: script flows_of: %w", b.Name, r.Err())
		}
	}
	return flows, nil
}
