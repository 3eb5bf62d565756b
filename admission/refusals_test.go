package admission

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/lua"
)

// inBubble runs a test in time that passes only when all sleep, with a Redis
// in the same time whose round trips take as long as the test says.
func inBubble(t *testing.T, test func(t *testing.T, r *bubbleRedis)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		mini := miniredis.NewMiniRedis()
		mini.ClockTTL(true)
		client := redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:1", MaxRetries: -1, DisableIdentity: true, Protocol: 2,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
			Dialer:                   func(context.Context, string, string) (net.Conn, error) { return mini.Dial() },
		})
		test(t, &bubbleRedis{UniversalClient: client})
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		mini.Close()
	})
}

// bubbleRedis has round trips that take time, and counts them.
type bubbleRedis struct {
	redis.UniversalClient
	there, back atomic.Int64 // nanoseconds
	sent        atomic.Int64
}

func (b *bubbleRedis) Process(ctx context.Context, cmd redis.Cmder) error {
	b.sent.Add(1)
	<-time.After(time.Duration(b.there.Load()))
	err := b.UniversalClient.Process(ctx, cmd)
	<-time.After(time.Duration(b.back.Load()))
	return err
}

// limitOfAll is a limit with defaults of an algorithm.
func limitOfAll(algorithm Algorithm, count int64, per time.Duration) Limit {
	return Limit{Name: "l", Algorithm: algorithm, Limit: Rate{Count: count, Per: per, Unit: UnitRequests}}
}

// step is one question of a property: after some time, of a cost; wait says to
// try what a refused caller is told.
type step struct {
	elapsed time.Duration
	cost    int64
	wait    bool
}

// Whoever is refused without a question would be refused by Redis too, and who
// waits for as long as he is told is admitted.
func TestRefusalsFromMemoryAreTrue(t *testing.T) {
	t.Parallel()
	for _, algorithm := range Algorithms() {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			fromMemory := 0
			rapid.Check(t, func(rt *rapid.T) {
				per := rapid.SampledFrom([]time.Duration{100 * time.Millisecond, time.Second, time.Minute}).Draw(rt, "per")
				limit := limitOfAll(algorithm, rapid.Int64Range(1, 20).Draw(rt, "count"), per)
				there := rapid.Int64Range(0, 20_000).Draw(rt, "there") * 1000
				back := rapid.Int64Range(0, 20_000).Draw(rt, "back") * 1000
				steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
					return step{
						elapsed: time.Duration(rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 2*int64(limit.Limit.Interval()))).Draw(rt, "elapsed")),
						cost:    rapid.Int64Range(1, limit.Limit.Count).Draw(rt, "cost"),
						wait:    rapid.IntRange(0, 5).Draw(rt, "wait") == 0,
					}
				}), 20, 40).Draw(rt, "steps")
				var fault string
				inBubble(t, func(t *testing.T, client *bubbleRedis) {
					var n int
					n, fault = compareWithRedis(t, client, limit, there, back, steps)
					fromMemory += n
				})
				if fault != "" {
					rt.Fatal(fault)
				}
			})
			if fromMemory < 10 {
				t.Errorf("%d refusals from memory: this shows little", fromMemory)
			}
		})
	}
}

// compareWithRedis asks a limiter, and of each refusal from memory also Redis.
// It returns how many those were, and what was not true.
func compareWithRedis(t *testing.T, client *bubbleRedis, limit Limit, there, back int64, steps []step) (fromMemory int, fault string) {
	l := newLimiter(t, client, limit)
	truth := func(cost int64) Decision {
		client.there.Store(0)
		client.back.Store(0)
		d, err := newLimiter(t, client).Allow(t.Context(), limit, "k", cost) // one that remembers nothing
		if err != nil {
			t.Error(err)
		}
		return d
	}
	for i, s := range steps {
		<-time.After(s.elapsed)
		client.there.Store(there)
		client.back.Store(back)
		d, err := l.Allow(t.Context(), limit, "k", s.cost)
		if err != nil {
			return fromMemory, err.Error()
		}
		if d.Source != FromMemory {
			continue
		}
		fromMemory++
		if redis := truth(s.cost); redis.Allowed || redis.Remaining < d.Remaining || redis.RetryAfter > d.RetryAfter+time.Microsecond {
			return fromMemory, fmt.Sprintf("step %d: memory says %+v, Redis says %+v", i, d, redis)
		}
		if !s.wait {
			continue
		}
		<-time.After(d.RetryAfter)
		if redis := truth(s.cost); !redis.Allowed {
			return fromMemory, fmt.Sprintf("step %d: after %s Redis says %+v", i, d.RetryAfter, redis)
		}
		return fromMemory, "" // that was spent by somebody else, of whom the memory does not know
	}
	return fromMemory, ""
}

// Somebody who asks all the time is a question of Redis once a second.
func TestRefusalsAskRarely(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, client *bubbleRedis) {
		limit := limitOfAll(FixedWindow, 5, time.Hour)
		l := newLimiter(t, client, limit)
		ask := func() Decision {
			t.Helper()
			d, err := l.Ask(t.Context(), "l", Identity{}, 1)
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		for range 6 {
			ask()
		}
		before := client.sent.Load()
		last := time.Hour
		for range 1000 { // 10 s
			<-time.After(10 * time.Millisecond)
			d := ask()
			if d.Allowed || d.RetryAfter > last || d.Quota != 5 {
				t.Fatalf("%+v", d)
			}
			last = d.RetryAfter
		}
		if sent := client.sent.Load() - before; sent > 10 {
			t.Errorf("%d questions in 10 s", sent)
		}
		// A smaller cost is another question; so is a changed limit.
		if _, err := l.Override(t.Context(), "l", Patch{Limit: &Rate{Count: 6, Per: time.Hour, Unit: UnitRequests}}); err != nil {
			t.Fatal(err)
		}
		if d := ask(); !d.Allowed {
			t.Errorf("%+v: the limit was raised", d)
		}
		// Another process raises it: that is noticed within a second.
		other := newLimiter(t, client, limit)
		ask()
		if _, err := other.Override(t.Context(), "l", Patch{Limit: &Rate{Count: 7, Per: time.Hour, Unit: UnitRequests}}); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Second)
		if d := ask(); !d.Allowed {
			t.Errorf("%+v: the limit was raised a second ago", d)
		}
	})
}

// A memory that is full forgets, and is never wrong.
func TestRefusalsAreBounded(t *testing.T) {
	t.Parallel()
	r, f := newRefusals(), compile(limitOfAll(FixedWindow, 5, time.Hour).WithDefaults(), "", "")
	now := time.Now()
	for i := range 2 * maxRefusals {
		r.remember(f, fmt.Sprint(i), 2, now, f.decide(lua.Refused, 1, 60_000_000, 60_000_000))
	}
	if r.of.Len() != maxRefusals {
		t.Errorf("%d are remembered", r.of.Len())
	}
	if _, ok := r.recall(f, "0", 2, now); ok {
		t.Error("the oldest one is remembered")
	}
	newest := fmt.Sprint(2*maxRefusals - 1)
	for cost, want := range map[int64]bool{1: false, 2: true, 5: true, 6: false} {
		if _, ok := r.recall(f, newest, cost, now); ok != want {
			t.Errorf("cost %d: remembered: %t", cost, ok)
		}
	}
	if _, ok := r.recall(f, newest, 2, now.Add(forgetAfter)); ok {
		t.Error("it is remembered for longer than a second")
	}
}
