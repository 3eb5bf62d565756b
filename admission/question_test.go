package admission

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/redisconn"
)

// 64 callers at each of four limiters with connections of their own: exactly
// the limit passes, also while some give up and others ask for other keys.
func TestExactlyTheLimit(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, algorithm := range Algorithms() {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			limit := Limit{Name: strings.ReplaceAll(string(algorithm), "_", "-"), Algorithm: algorithm, Limit: Rate{Count: 1000, Per: MaxPeriod, Unit: UnitRequests}}
			var passed, asked atomic.Int64
			var all sync.WaitGroup
			for range 4 {
				limiter := newLimiter(t, server.Client(), limit)
				limiter.timeout = 10 * time.Second
				for caller := range 64 {
					all.Go(func() {
						for i := range 20 {
							d, err := limiter.Ask(t.Context(), limit.Name, Identity{}, 1)
							if err != nil {
								t.Error(err)
							}
							asked.Add(1)
							if d.Allowed {
								passed.Add(1)
							}
							if _, err := limiter.AskKey(t.Context(), limit.Name, "", fmt.Sprint(caller, i), 1); err != nil {
								t.Error(err)
							}
						}
					})
				}
			}
			all.Wait()
			if passed.Load() != 1000 {
				t.Errorf("%d of %d passed", passed.Load(), asked.Load())
			}
		})
	}
}

// hookedRedis counts what is sent, and can hold it back.
type hookedRedis struct {
	redis.UniversalClient
	sent atomic.Int64
	hold atomic.Pointer[chan struct{}]
}

func (h *hookedRedis) Process(ctx context.Context, cmd redis.Cmder) error {
	h.sent.Add(1)
	if hold := h.hold.Load(); hold != nil {
		<-*hold
	}
	return h.UniversalClient.Process(ctx, cmd)
}

// Those who come while a question is under way go together in the next; who
// gives up goes without an answer, and the others get theirs.
func TestQuestionsShareARoundTrip(t *testing.T) {
	t.Parallel()
	client := &hookedRedis{UniversalClient: redistest.Start(t).Client()}
	limit := Limit{Name: "l", Limit: Rate{Count: 1000, Per: time.Hour, Unit: UnitRequests}}
	l := newLimiter(t, client, limit)
	l.timeout = 10 * time.Second
	if _, err := l.Ask(t.Context(), "l", Identity{}, 1); err != nil {
		t.Fatal(err)
	}
	g, _ := l.configured("l")
	waiting := func(n int) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); ; {
			have := g.queue.Waiting()
			if have == n {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d wait, want %d", have, n)
			}
		}
	}
	hold := make(chan struct{})
	client.hold.Store(&hold)
	before := client.sent.Load()
	var all sync.WaitGroup
	remaining := sync.Map{}
	ask := func(ctx context.Context, want error) {
		all.Go(func() {
			d, err := l.Ask(ctx, "l", Identity{}, 1)
			if !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
			if _, twice := remaining.LoadOrStore(d.Remaining, true); twice && want == nil {
				t.Errorf("two were told that %d remain", d.Remaining)
			}
		})
	}
	for n := range int64(2) { // no third batch goes beside two
		ask(t.Context(), nil)
		for client.sent.Load() == before+n {
		}
	}
	impatient, cancel := context.WithCancel(t.Context())
	ask(impatient, context.Canceled)
	waiting(1)
	for range 9 {
		ask(t.Context(), nil)
	}
	waiting(10)
	cancel()
	waiting(9)
	// One whose own deadline is near does not keep the others from theirs.
	client.hold.Store(nil)
	close(hold)
	all.Wait()
	if sent := client.sent.Load() - before; sent != 3 {
		t.Errorf("%d were sent for 11 questions, want 3", sent)
	}
	if d, err := l.Ask(t.Context(), "l", Identity{}, 1); err != nil || d.Remaining != 1000-13 {
		t.Errorf("%+v, %v", d, err)
	}
}

// A caller's own deadline ends his question, and no other's; it is no failure
// of Redis.
func TestDeadlineOfACaller(t *testing.T) {
	t.Parallel()
	client := &hookedRedis{UniversalClient: redistest.Start(t).Client()}
	l := newLimiter(t, client, Limit{Name: "l", Limit: Rate{Count: 1000, Per: time.Hour, Unit: UnitRequests}})
	l.timeout = 10 * time.Second
	if _, err := l.Ask(t.Context(), "l", Identity{}, 1); err != nil {
		t.Fatal(err)
	}
	hold := make(chan struct{})
	client.hold.Store(&hold)
	for range 2 * redisconn.DefaultBreakerFailures {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		if _, err := l.Ask(ctx, "l", Identity{}, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		cancel()
	}
	client.hold.Store(nil)
	close(hold)
	if d, err := l.Ask(t.Context(), "l", Identity{}, 1); err != nil || !d.Allowed || l.breaker.Shaky() {
		t.Errorf("%+v, %v", d, err)
	}
}

// A key of Redis that holds something else is an error for who asks about it,
// and for nobody in the same batch.
func TestASpoiltKeyConcernsNobodyElse(t *testing.T) {
	t.Parallel()
	client := &hookedRedis{UniversalClient: redistest.Start(t).Client()}
	l := newLimiter(t, client)
	limit := Limit{Name: "l", Limit: Rate{Count: 1000, Per: time.Hour, Unit: UnitRequests}}
	if err := client.LPush(t.Context(), "tundish:{l:l}:spoilt", 1).Err(); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for _, key := range []string{"a", "spoilt", "b"} {
		for range 16 {
			all.Go(func() {
				for range 20 {
					d, err := l.Allow(t.Context(), limit, key, 1)
					if (key == "spoilt") == (err == nil) || redisconn.Unavailable(err) || err == nil && !d.Allowed {
						t.Errorf("%s: %+v, %v", key, d, err)
					}
				}
			})
		}
	}
	all.Wait()
}
