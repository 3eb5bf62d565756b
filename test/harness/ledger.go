package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/lua"
)

// Ledger is a hook that records every slot that a claim hands out, as Redis returns it, and counts the calls of Redis.
type Ledger struct {
	Mu     sync.Mutex
	slots  []int64
	Asked  map[string]int // scripts by name, other commands by theirs
	Faults []error
}

// DialHook is one of the three methods of a hook of the Redis client. It changes nothing.
func (l *Ledger) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook is for commands on their own.
func (l *Ledger) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		l.note(cmd, err)
		return err
	}
}

// ProcessPipelineHook is for pipelines.
func (l *Ledger) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			l.note(cmd, cmd.Err())
		}
		return err
	}
}

func (l *Ledger) note(cmd redis.Cmder, err error) {
	name := cmd.Name()
	if script := lua.ScriptOf(cmd); script != nil {
		name = script.Name()
	}
	l.Mu.Lock()
	defer l.Mu.Unlock()
	if l.Asked == nil {
		l.Asked = map[string]int{}
	}
	l.Asked[name]++
	if err != nil && !redis.HasErrorPrefix(err, "NOSCRIPT") && !errors.Is(err, redis.Nil) && !errors.Is(err, context.Canceled) {
		l.Faults = append(l.Faults, fmt.Errorf("%s: %w", name, err))
	}
	if reply, ok := cmd.(interface{ Val() any }); ok && name == lua.Claim.Name() && err == nil {
		l.slots = append(l.slots, SlotsOf(reply.Val())...)
	}
}

// SlotsOf reads the slots in a claim's reply for a bucket without flows: see claim.lua.
func SlotsOf(reply any) (slots []int64) {
	r := lua.NewReader(reply)
	if r.Int() != 0 {
		return nil
	}
	for range 11 {
		_ = r.Int()
	}
	for range r.Int() {
		_, slot, _ := r.Text(), r.Int(), r.Text()
		slots = append(slots, slot)
	}
	return slots
}

// Calls returns the number of all calls of Redis.
func (l *Ledger) Calls() (sum int) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	for _, n := range l.Asked {
		sum += n
	}
	return sum
}

// Sorted are the slots until now, the first one first.
func (l *Ledger) Sorted() Slots {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	return slices.Sorted(slices.Values(l.slots))
}

// Slots are instants of the store's clock in microseconds, the first one first.
type Slots []int64

// Early returns by how much the slots of any window, of any begin and length, are ahead of the rate at most: n of them need (n-1)/rate. Slots are whole
// microseconds, so even slots seem to be ahead by less than one.
func (s Slots) Early(rate int) time.Duration {
	worst, latest := int64(0), int64(0) // in microseconds times the rate
	for i, at := range s {
		behind := (at-s[0])*int64(rate) - int64(i)*1_000_000 // of a stream that began with the first
		if i == 0 || behind > latest {
			latest = behind
		}
		worst = max(worst, latest-behind)
	}
	return time.Duration(worst) * time.Microsecond / time.Duration(rate)
}

// Fewest returns the number of slots in the emptiest window of that length between the first slot and the last.
func (s Slots) Fewest(window time.Duration) int {
	fewest, first := len(s), 0
	for i := range s {
		for s[i]-s[first] >= window.Microseconds() {
			fewest = min(fewest, i-first)
			first++
		}
	}
	return fewest
}

// Most returns the number of slots in the fullest window.
func (s Slots) Most(window time.Duration) (most int) {
	first := 0
	for i := range s {
		for s[i]-s[first] >= window.Microseconds() {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// Rate returns the mean of slots a second, from the first to the last.
func (s Slots) Rate() float64 {
	if len(s) < 2 {
		return 0
	}
	return float64(len(s)-1) / (time.Duration(s[len(s)-1]-s[0]) * time.Microsecond).Seconds()
}

// Within returns the slots from one instant to before another.
func (s Slots) Within(from, to time.Time) Slots {
	first, _ := slices.BinarySearch(s, from.UnixMicro())
	end, _ := slices.BinarySearch(s, to.UnixMicro())
	return s[first:end]
}

// Of are the slots that a bucket was given.
func (m *SlotMonitor) Of(bucket string) Slots {
	grants, _ := m.All()
	var all Slots
	for _, g := range grants {
		if g.Bucket == bucket {
			all = append(all, g.Slot)
		}
	}
	slices.Sort(all)
	return all
}
