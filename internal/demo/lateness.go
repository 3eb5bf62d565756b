package demo

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
)

// lateness measures how far arrivals at the receiver are off their slots. Slots obey the rate exactly, and arrivals only as exactly as this machine
// keeps time: in a window W arrive at most rate × (W + spread) + 1.
//
// It wraps the worker to read the slots, and hooks the dispatchers' connections to measure the longest round trip: a dispatcher converts slots to its
// own clock no more exactly than that. The zero value is ready for use; it is safe for concurrent use.
type lateness struct {
	mu        sync.Mutex
	slots     map[string]time.Time // of jobs on their way, by id
	least     time.Duration
	most      time.Duration
	any       bool
	roundTrip time.Duration
}

// watch records the slot of each attempt, then calls next to deliver it.
func (l *lateness) watch(next shaper.Worker) shaper.Worker {
	return shaper.WorkerFunc(func(ctx context.Context, attempt *shaper.Attempt) shaper.Outcome {
		l.expect(attempt.ID, attempt.Slot())
		return next.Deliver(ctx, attempt)
	})
}

func (l *lateness) expect(id string, slot time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.slots == nil {
		l.slots = make(map[string]time.Time)
	}
	l.slots[id] = slot
}

func (l *lateness) arrived(id string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	slot, ok := l.slots[id]
	if !ok {
		return // no producer sent it: the checker calls it unexpected, or doubled
	}
	delete(l.slots, id)
	late := at.Sub(slot)
	if !l.any {
		l.least, l.most, l.any = late, late, true
	}
	l.least, l.most = min(l.least, late), max(l.most, late)
}

// spread returns by how much two arrivals may be closer than their slots.
func (l *lateness) spread() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.most - l.least + l.roundTrip
}

// DialHook leaves connections unchanged.
func (l *lateness) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook times the scripts that claim slots.
func (l *lateness) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		start := time.Now()
		err := next(ctx, cmd)
		if took := time.Since(start); err == nil && lua.ScriptOf(cmd) != nil {
			l.mu.Lock()
			l.roundTrip = max(l.roundTrip, took)
			l.mu.Unlock()
		}
		return err
	}
}

// ProcessPipelineHook leaves pipelines unchanged: none claims.
func (l *lateness) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return next(ctx, cmds) }
}
