package httpapi

import (
	"context"
	"time"
)

const (
	// pingTimeout is how long Redis may take to answer for the process to be
	// ready.
	pingTimeout = time.Second

	// pulseAge is how long an answer of Redis is kept for the next /readyz. Any client may
	// ask /readyz without a key, so Redis must not work for each question.
	pulseAge = 200 * time.Millisecond
)

// Pinger asks Redis for a sign of life.
type Pinger interface {
	Ping(ctx context.Context) error
}

// pulse is the last answer of a Pinger. For any number of callers there is one PING at a time,
// and at most one in each pulseAge.
type pulse struct {
	store Pinger
	turn  chan struct{} // holds one element while no caller asks Redis

	// Written by the caller that has the turn.
	asked time.Time
	alive bool
}

func newPulse(store Pinger) *pulse {
	p := &pulse{store: store, turn: make(chan struct{}, 1)}
	p.turn <- struct{}{}
	return p
}

// beats reports whether Redis answered within pingTimeout, now or a pulseAge ago. Callers
// wait up to pingTimeout for the caller that asks Redis. The end of ctx ends their wait only.
func (p *pulse) beats(ctx context.Context) bool {
	patience, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	select {
	case <-p.turn:
	case <-patience.Done():
		return false
	}
	defer func() { p.turn <- struct{}{} }()
	if p.asked.IsZero() || time.Since(p.asked) >= pulseAge {
		// The answer is for all: a client that hangs up does not make Redis look dead.
		asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), pingTimeout)
		defer cancel()
		p.alive = p.store.Ping(asking) == nil
		p.asked = time.Now()
	}
	return p.alive
}
