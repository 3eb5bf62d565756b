package admission

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/tundish-io/tundish/lua"
)

// Times of the register of instances.
const (
	sayEvery     = 5 * time.Second
	silentFor    = 15 * time.Second
	instancesKey = "tundish:instances"
)

// presence registers this process in Redis and counts the registered processes, so that each may apply its share of a limit while Redis is
// unavailable ([Local]).
//
// It has no long-lived goroutine: a decision of a Local limit registers the process in the background, at most every five seconds. A process
// that decides nothing for fifteen seconds does not count.
type presence struct {
	id    string
	next  *atomic.Int64 // when to register again, nanoseconds of the process's clock
	count *atomic.Int64
	born  time.Time
}

func newPresence() presence {
	return presence{id: uuid.NewString(), next: new(atomic.Int64), count: new(atomic.Int64), born: time.Now()}
}

// instances is how many processes were there when Redis last was, this one
// included.
func (p presence) instances() int64 { return max(p.count.Load(), 1) }

// say registers the process, if it is time.
func (p presence) say(ctx context.Context, l *Limiter) {
	now := int64(time.Since(p.born))
	next := p.next.Load()
	if now < next || !p.next.CompareAndSwap(next, now+int64(sayEvery)) {
		return
	}
	ctx = context.WithoutCancel(ctx)
	l.background.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, l.timeout)
		defer cancel()
		var numbers []int64
		err := l.breaker.Run(func() (err error) {
			numbers, err = lua.Instances.Numbers(ctx, l.redis, []string{instancesKey}, p.id, silentFor.Microseconds())
			return err
		})
		if err != nil || len(numbers) != 1 {
			l.log.DebugContext(ctx, "could not count the instances", "error", err)
			return
		}
		p.count.Store(numbers[0])
	})
}
