package test

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/test/harness"
)

// pacer is what bounds the departures of a pool, a bucket, a group or a flow.
type pacer struct {
	rate, burst float64
	inFlight    int // 0: no bound
	quotas      []admission.Rate
	changes     []rateChange
}

// rateChange is a rate that was set: it may hold from the begin of the call, and holds from its end.
type rateChange struct {
	began, ended int64 // microseconds
	rate         float64
}

func (p *pacer) changed(began, ended time.Time, rate float64) {
	p.changes = append(p.changes, rateChange{began.UnixMicro(), ended.UnixMicro(), rate})
}

// pacersOf are those of the buckets and their pool. What all flows and groups of a bucket have to begin with is
// under its name and "/flow" or "/group".
func pacersOf(buckets []shaper.Bucket) map[string]*pacer {
	pacers := map[string]*pacer{}
	add := func(path string, rate admission.Rate, burst, inFlight int64, quotas []admission.Rate) {
		pacers[path] = &pacer{rate: rate.PerSecond(), burst: float64(burst), inFlight: int(inFlight), quotas: quotas}
	}
	for _, b := range buckets {
		add(b.Name, b.Rate, b.Burst, b.MaxInFlight, b.Quotas)
		if p := b.Pool; p != nil {
			add(p.Name, p.Rate, p.Burst, p.MaxInFlight, p.Quotas)
		}
		if f := b.Flow; f != nil {
			add(b.Name+"/flow", f.Rate, f.Burst, f.MaxInFlight, f.Quotas)
		}
		if g := b.Group; g != nil {
			add(b.Name+"/group", g.Rate, g.Burst, g.MaxInFlight, g.Quotas)
		}
	}
	return pacers
}

// pacer is that of a path: of a flow or a group, which has what all of its kind have to begin with.
func (s *soak) pacer(path string) *pacer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pacers[path] == nil {
		parts := strings.Split(path, "/")
		kind := "/flow"
		if parts[0] == groupsBucket && len(parts) == 2 {
			kind = "/group"
		}
		own := *s.pacers[parts[0]+kind]
		s.pacers[path] = &own
	}
	return s.pacers[path]
}

// allowed is how many departures the rate brings until an instant, counted from an earlier one. Slots are claimed
// up to a horizon ahead: so long an old rate holds beside a new one, and the faster one counts. A departure may
// be under way to its slot when the rate changes, so that each change allows one more.
func (p *pacer) allowed(from, to int64) float64 {
	edges := []int64{from, to}
	more := 0.0
	horizon := soakHorizon.Microseconds()
	for _, c := range p.changes {
		if from < c.ended+horizon && c.began <= to {
			more++
		}
		for _, edge := range []int64{c.began, c.ended + horizon} {
			if from < edge && edge < to {
				edges = append(edges, edge)
			}
		}
	}
	slices.Sort(edges)
	sum := more
	for i, edge := range edges[1:] {
		sum += p.fastest(edges[i], edge) * float64(edge-edges[i]) / 1e6
	}
	return sum
}

// fastest is the highest rate that may hold at some instant between two, among which none changes.
func (p *pacer) fastest(from, to int64) float64 {
	fastest, rate := 0.0, p.rate
	for i := 0; i <= len(p.changes); i++ {
		begin, until := int64(math.MinInt64), int64(math.MaxInt64)
		if i > 0 {
			begin, rate = p.changes[i-1].began, p.changes[i-1].rate
		}
		if i < len(p.changes) {
			until = p.changes[i].ended + soakHorizon.Microseconds()
		}
		if begin < to && until > from {
			fastest = max(fastest, rate)
		}
	}
	return fastest
}

// crowded says by how many slots the fullest window, of any length, is above what rate and burst allow.
func (p *pacer) crowded(all harness.Slots) (above float64, window time.Duration) {
	above = math.Inf(-1)
	if len(all) == 0 {
		return 0, 0
	}
	// Of windows that end with a slot, the worst one begins where what came less what was allowed is least.
	allowed, least, first := 0.0, 0.0, all[0]
	for i, slot := range all {
		if i > 0 {
			allowed += p.allowed(all[i-1], slot)
		}
		ahead := float64(i) - allowed
		if i == 0 || ahead < least {
			least, first = ahead, slot
		}
		if by := ahead - least + 1 - p.burst; by > above {
			above, window = by, time.Duration(slot-first)*time.Microsecond
		}
	}
	return above, window
}
