package admission

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Wait waits until n requests may pass for a key, and spends them. Callers pace their own calls with it, without a queue in Redis. Key is as in
// [Limiter.AskKey].
//
// In each process, one of the calls that wait for a key asks at a time, and retries when the limit allows. So a key has at most one question
// under way per process, and at most one call passes per round trip. The order of waiting calls is not guaranteed, in one process or between
// processes.
//
// It returns the errors of AskKey, the error of ctx, and one for a cost that the limit can never allow. While Redis is down, the limit's
// OnStoreFailure decides: a limit that is [Closed] returns an error at once, and the caller may retry.
func (l *Limiter) Wait(ctx context.Context, name, key string, n int64) error {
	leave, err := l.turns.enter(ctx, turnKey{name, key})
	if err != nil {
		return err
	}
	defer leave()
	for {
		d, err := l.AskKey(ctx, name, "", key, n)
		switch {
		case err != nil:
			return err
		case d.Allowed:
			return nil
		case d.Impossible:
			return errors.New(ImpossibleText(n, d))
		}
		again := time.NewTimer(d.RetryAfter)
		select {
		case <-ctx.Done():
			again.Stop()
			return ctx.Err()
		case <-again.C:
		}
	}
}

// turns lets one of the calls that wait for a key ask at a time. A key without waiting calls uses no memory.
type turns struct {
	mu    sync.Mutex
	byKey map[turnKey]*turn
}

type turnKey struct{ limit, key string }

type turn struct {
	held chan struct{} // by the call that asks
	here int           // calls that ask or wait
}

// enter waits for the turn of a key.
func (t *turns) enter(ctx context.Context, key turnKey) (leave func(), err error) {
	t.mu.Lock()
	of := t.byKey[key]
	if of == nil {
		of = &turn{held: make(chan struct{}, 1)}
		t.byKey[key] = of
	}
	of.here++
	t.mu.Unlock()
	out := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if of.here--; of.here == 0 {
			delete(t.byKey, key)
		}
	}
	select {
	case of.held <- struct{}{}:
		return func() { <-of.held; out() }, nil
	case <-ctx.Done():
		out()
		return nil, ctx.Err()
	}
}
