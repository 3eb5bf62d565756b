package httpapi

import (
	"context"
	"time"

	"github.com/tundish-io/tundish/redisconn"
)

const (
	// pingTimeout is how long Redis may take to reply for the process to be ready.
	pingTimeout = time.Second

	// pulseAge is how long a reply of Redis is kept for the next /readyz. Any client may request /readyz without a key, so not every request may reach
	// Redis.
	pulseAge = 200 * time.Millisecond
)

// Prober checks Redis: [redisconn.FailureOf] names its error.
type Prober interface {
	Probe(ctx context.Context) error
}

// pulse is the last result of a Prober. For any number of callers there is one probe at a time,
// and at most one in each pulseAge.
type pulse struct {
	store Prober
	turn  chan struct{} // holds one element while no caller asks Redis

	// Written by the caller that has the turn.
	asked   time.Time
	failure redisconn.Failure
}

func newPulse(store Prober) *pulse {
	p := &pulse{store: store, turn: make(chan struct{}, 1)}
	p.turn <- struct{}{}
	return p
}

// check returns the failure of Redis, now or up to pulseAge ago. An error of this program's own counts as unreachable. Callers wait up to pingTimeout
// for the caller that asks Redis. The end of ctx ends only their wait.
func (p *pulse) check(ctx context.Context) redisconn.Failure {
	patience, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	select {
	case <-p.turn:
	case <-patience.Done():
		return redisconn.Unreachable
	}
	defer func() { p.turn <- struct{}{} }()
	if p.asked.IsZero() || time.Since(p.asked) >= pulseAge {
		// The reply is for all callers: a client that hangs up must not make Redis look dead.
		asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), pingTimeout)
		defer cancel()
		err := p.store.Probe(asking)
		p.failure = redisconn.FailureOf(err)
		if err != nil && p.failure == redisconn.NoFailure {
			p.failure = redisconn.Unreachable
		}
		p.asked = time.Now()
	}
	return p.failure
}
