package admission

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// slowRedis counts what is under way.
type slowRedis struct {
	*bubbleRedis
	underWay atomic.Int64
}

func (s *slowRedis) Process(ctx context.Context, cmd redis.Cmder) error {
	s.underWay.Add(1)
	defer s.underWay.Add(-1)
	return s.bubbleRedis.Process(ctx, cmd)
}

// Close waits for what runs beside callers who gave up, and nothing is asked after it.
func TestCloseOfALimiter(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, fast *bubbleRedis) {
		client := &slowRedis{bubbleRedis: fast}
		limit := limitOfAll(TokenBucket, 1000, time.Second)
		limit.OnStoreFailure = Local // says beside its callers that it is there
		l, err := NewLimiter(LimiterConfig{Redis: client, Limits: []Limit{limit}, Timeout: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Ask(t.Context(), "l", Identity{}, 1); err != nil {
			t.Fatal(err)
		}
		client.there.Store(int64(time.Second))
		var callers sync.WaitGroup
		for range 20 {
			callers.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				if _, err := l.Ask(ctx, "l", Identity{}, 1); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			})
		}
		callers.Wait()
		if client.underWay.Load() == 0 {
			t.Error("nothing is under way: this shows nothing")
		}
		var closers sync.WaitGroup
		for range 3 {
			closers.Go(l.Close)
		}
		closers.Wait()
		if n := client.underWay.Load(); n != 0 {
			t.Errorf("%d commands are under way after Close", n)
		}
		before := client.sent.Load()
		_, askErr := l.Ask(t.Context(), "l", Identity{}, 1)
		_, keyErr := l.AskKey(t.Context(), "l", "", "k", 1)
		_, allowErr := l.Allow(t.Context(), limit, "k", 1)
		_, limitsErr := l.Limits(t.Context())
		_, overrideErr := l.Override(t.Context(), "l", Patch{})
		_, resetErr := l.ResetOverride(t.Context(), "l")
		for i, err := range []error{askErr, keyErr, allowErr, limitsErr, overrideErr, resetErr, l.Reconfigure(t.Context(), nil, 1)} {
			if !errors.Is(err, ErrClosed) {
				t.Errorf("call %d: %v", i, err)
			}
		}
		if sent := client.sent.Load() - before; sent != 0 {
			t.Errorf("%d commands were sent after Close", sent)
		}
	})
}

// Each call beside a Close is answered, or is told that the limiter is closed.
func TestCloseBesideCalls(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, client *bubbleRedis) {
		client.there.Store(int64(time.Millisecond))
		l := newLimiter(t, client, limitOfAll(TokenBucket, 1000, time.Second))
		var allowed, closed atomic.Int64
		var callers sync.WaitGroup
		for i := range 16 {
			callers.Go(func() {
				for {
					<-time.After(time.Duration(i) * 100 * time.Microsecond)
					d, err := l.Ask(t.Context(), "l", Identity{}, 1)
					switch {
					case errors.Is(err, ErrClosed):
						closed.Add(1)
						return
					case err != nil || !d.Allowed:
						t.Errorf("%+v, %v", d, err)
						return
					}
					allowed.Add(1)
				}
			})
		}
		<-time.After(20 * time.Millisecond)
		l.Close()
		callers.Wait()
		if closed.Load() != 16 || allowed.Load() == 0 {
			t.Errorf("%d were allowed, %d found it closed", allowed.Load(), closed.Load())
		}
	})
}
