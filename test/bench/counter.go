package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// counter counts departures, and times those from one number to another.
type counter struct {
	from, to     int64
	n            atomic.Int64
	begun, ended atomic.Int64 // Unix nanoseconds
	done         chan struct{}
}

func newCounter(from, to int64) *counter {
	return &counter{from: from, to: to, done: make(chan struct{})}
}

func (c *counter) note() {
	switch c.n.Add(1) {
	case c.from:
		c.begun.Store(time.Now().UnixNano())
	case c.to:
		c.ended.Store(time.Now().UnixNano())
		close(c.done)
	}
}

// Deliver makes the counter a worker that does nothing else. It uses half of the reserved budgets.
func (c *counter) Deliver(_ context.Context, a *shaper.Attempt) shaper.Outcome {
	c.note()
	outcome := shaper.Done(200)
	if n, named := a.Reserved.Of(shaper.UnitTokens); named {
		outcome.Used = shaper.Units{shaper.UnitTokens: n / 2}
	}
	return outcome
}

// wait returns when the last one was counted.
func (c *counter) wait(ctx context.Context) error {
	const most = time.Minute
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(most):
		return fmt.Errorf("%d of %d departures within %s", c.n.Load(), c.to, most)
	}
}

// rate returns the number of deliveries a second.
func (c *counter) rate() float64 {
	return float64(c.to-c.from) / time.Duration(c.ended.Load()-c.begun.Load()).Seconds()
}

// within returns the number of deliveries a second over a length of time, after a warm-up.
func (c *counter) within(ctx context.Context, warmUp, length time.Duration) (float64, error) {
	if err := sleep(ctx, warmUp); err != nil {
		return 0, err
	}
	before, start := c.n.Load(), time.Now()
	err := sleep(ctx, length)
	return float64(c.n.Load()-before) / time.Since(start).Seconds(), err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
