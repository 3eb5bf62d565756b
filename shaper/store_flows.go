package shaper

import (
	"context"
	"fmt"

	"github.com/tundish-io/tundish/lua"
)

// flowSet are the flows that one call of a script touches, in the order in
// which their places are declared.
type flowSet struct {
	names   []string
	numbers map[string]int // from 1 on
}

// number is which of the flows it is, which it becomes if it is not there yet.
func (g *flowSet) number(flow string) int {
	if n, ok := g.numbers[flow]; ok {
		return n
	}
	if g.numbers == nil {
		g.numbers = make(map[string]int, 1)
	}
	g.names = append(g.names, flow)
	g.numbers[flow] = len(g.names)
	return len(g.names)
}

// args are the names, as arguments of a script.
func (g *flowSet) args() []any {
	args := make([]any, len(g.names))
	for i, name := range g.names {
		args[i] = name
	}
	return args
}

// maxFlowSet is how many flows one script touches at most.
const maxFlowSet = 256

// Sizes of one question of which flow jobs are: the answer is in their bodies.
const (
	flowsOfBatch = 500
	flowsOfBytes = 1 << 20
)

// flowsOf tells in whose places jobs lie, as their headers say: "" of an id that
// is no job. Where all lie in the same it asks nobody.
func (s *store) flowsOf(ctx context.Context, b *bucketState, ids ...string) ([]string, error) {
	flows := make([]string, 0, len(ids))
	if !b.hasFlows() {
		return flows[:len(ids)], nil
	}
	for len(flows) < len(ids) {
		some := ids[len(flows):min(len(ids), len(flows)+flowsOfBatch)]
		args := make([]any, 0, 2+len(some))
		args = append(args, flowsOfBytes, b.levels())
		for _, id := range some {
			args = append(args, id)
		}
		reply, err := s.run(ctx, lua.FlowsOf, b.keys.forFlowsOf(), args...)
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
