package admission

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
)

// Several limiters give out in advance what they took. No more is ever taken
// than the limit, and in any window no more passes than what may be taken in a
// window that is longer by the interval.
func TestOvershootOfSync(t *testing.T) {
	t.Parallel()
	const (
		instances = 4
		interval  = 200 * time.Millisecond
		count     = 1000
	)
	for _, c := range []struct {
		algorithm Algorithm
		perSecond float64 // asked by each instance
	}{
		{TokenBucket, 200}, {TokenBucket, 500}, {SlidingWindowLog, 500}, {SlidingWindowCounter, 500}, {FixedWindow, 500},
	} {
		t.Run(fmt.Sprint(c.algorithm, ", ", c.perSecond*instances, " a second"), func(t *testing.T) {
			algorithm := c.algorithm
			t.Parallel()
			lasts := 5 * time.Second
			if c.perSecond*instances > count && !redistest.Soak {
				lasts = 2 * time.Second
			}
			inBubble(t, func(t *testing.T, client *bubbleRedis) {
				limit := limitOfAll(algorithm, count, time.Second)
				limit.SyncInterval = interval
				client.there.Store(int64(time.Millisecond))
				client.back.Store(int64(time.Millisecond))
				var mu sync.Mutex
				var passed []time.Time
				asked, bySync := 0, 0
				begin := time.Now()
				var all sync.WaitGroup
				for i := range instances {
					l := newLimiter(t, client, limit)
					random := rand.New(rand.NewPCG(1, uint64(i)))
					all.Go(func() {
						for time.Since(begin) < lasts {
							<-time.After(time.Duration(random.ExpFloat64() * float64(time.Second) / c.perSecond))
							d, err := l.Ask(t.Context(), "l", Identity{}, 1)
							mu.Lock()
							asked++
							if err != nil {
								t.Error(err)
							}
							if d.Source == FromSync {
								bySync++
							}
							if d.Allowed {
								passed = append(passed, time.Now())
							}
							mu.Unlock()
						}
					})
				}
				all.Wait()
				most := 0
				for first, last := 0, 0; last < len(passed); last++ {
					for passed[last].Sub(passed[first]) >= time.Second {
						first++
					}
					most = max(most, last-first+1)
				}
				// What the algorithm itself lets through in a window, and an interval more.
				own := map[Algorithm]int{TokenBucket: 2 * count, SlidingWindowLog: count, SlidingWindowCounter: 2 * count, FixedWindow: 2 * count}[algorithm]
				bound := own + count*int(interval)/int(time.Second)*2
				if algorithm != SlidingWindowLog {
					bound = own
				}
				share := 100 * float64(most) / count
				t.Logf("%d of %d passed in %s, %d of them without Redis, with %d round trips; at most %d in a window: %.0f %% of the limit",
					len(passed), asked, lasts, bySync, client.sent.Load(), most, share)
				if most > bound {
					t.Errorf("%d passed in a window, want at most %d", most, bound)
				}
				if len(passed) > count*(int(lasts/time.Second)+2) || bySync == 0 {
					t.Errorf("%d passed, %d without Redis", len(passed), bySync)
				}
				if sent := int(client.sent.Load()); c.perSecond*instances < count && sent > asked/10 {
					t.Errorf("%d round trips for %d questions", sent, asked)
				}
			})
		})
	}
}

// The chunks together are never more than the limit, and what is left of one
// is dropped.
func TestChunksAreTakenOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, client *bubbleRedis) {
		limit := limitOfAll(FixedWindow, 100, time.Hour)
		limit.SyncInterval = 100 * time.Millisecond
		total := 0
		for i := range 3 {
			l := newLimiter(t, client, limit)
			for range 40 {
				<-time.After(3 * time.Millisecond)
				d, err := l.Ask(t.Context(), "l", Identity{}, 1)
				if err != nil {
					t.Fatal(err)
				}
				if d.Allowed {
					total++
				}
			}
			<-time.After(time.Second)
			c, ok := l.chunks.of.Get("tundish:{l:l}:all")
			if !ok {
				t.Fatal("no chunk")
			}
			before := c.left
			if d, err := l.Ask(t.Context(), "l", Identity{}, 1); err != nil || d.Source == FromSync {
				t.Errorf("limiter %d: %+v, %v: the chunk of %d is a second old", i, d, err, before)
			} else if d.Allowed {
				total++
			}
		}
		if total > 100 || total < 60 {
			t.Errorf("%d passed", total)
		}
		t.Log(fmt.Sprint(total, " of 100 passed"))
	})
}

// A question that is refused spends nothing, also where it wanted more than its
// cost in advance.
func TestARefusalWithSyncSpendsNothing(t *testing.T) {
	t.Parallel()
	for _, algorithm := range Algorithms() {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, client *bubbleRedis) {
				limit := limitOfAll(algorithm, 10, 24*time.Hour)
				limit.SyncInterval = time.Second
				l, plain := newLimiter(t, client, limit), newLimiter(t, client)
				ask := func(cost int64, allowed bool) {
					t.Helper()
					if d, err := l.Ask(t.Context(), "l", Identity{}, cost); err != nil || d.Allowed != allowed {
						t.Fatalf("cost %d: %+v, %v; want allowed %t", cost, d, err, allowed)
					}
				}
				ask(5, true)
				ask(7, false)
				<-time.After(1200 * time.Millisecond) // the refusal is asked about again, and 12 were asked for in the interval before
				ask(7, false)
				limit.SyncInterval = 0
				if d, err := plain.Allow(t.Context(), limit, "all", 5); err != nil || !d.Allowed {
					t.Errorf("5 of 10 are left after refusals: %+v, %v", d, err)
				}
			})
		})
	}
}

// What was taken in advance stays there for smaller costs when a larger one is
// refused.
func TestARefusalKeepsTheChunk(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, client *bubbleRedis) {
		limit := limitOfAll(FixedWindow, 10, 24*time.Hour)
		limit.SyncInterval = time.Second
		l := newLimiter(t, client, limit)
		ask := func(cost int64) Decision {
			t.Helper()
			d, err := l.Ask(t.Context(), "l", Identity{}, cost)
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		ask(2)
		ask(9) // refused
		<-time.After(1500 * time.Millisecond)
		ask(4) // takes what is left in advance: 4
		if d := ask(5); d.Allowed {
			t.Fatalf("%+v: 4 are left, all of them here", d)
		}
		for i := range 4 {
			if d := ask(1); !d.Allowed || d.Source != FromSync {
				t.Errorf("%d: %+v: what was taken in advance is gone", i, d)
			}
		}
	})
}

// Processes that obey Retry-After share what the limit has: nothing is lost to
// refusals, and who is alone in coming when told is let in.
func TestSyncWastesNothingOnRefusals(t *testing.T) {
	t.Parallel()
	for _, interval := range []time.Duration{100 * time.Millisecond, time.Second, 10 * time.Second} {
		t.Run(interval.String(), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, client *bubbleRedis) {
				const cost, lasts = 8, 20 * time.Second
				limit := limitOfAll(TokenBucket, 10, time.Second)
				limit.SyncInterval = interval
				var passed, asked atomic.Int64
				begin := time.Now()
				var all sync.WaitGroup
				for i := range 4 {
					l := newLimiter(t, client, limit)
					random := rand.New(rand.NewPCG(2, uint64(i)))
					all.Go(func() {
						for time.Since(begin) < lasts {
							d, err := l.Ask(t.Context(), "l", Identity{}, cost)
							if err != nil {
								t.Error(err)
							}
							asked.Add(1)
							if d.Allowed {
								passed.Add(1)
							}
							<-time.After(d.RetryAfter + time.Duration(random.ExpFloat64()*float64(50*time.Millisecond)))
						}
					})
				}
				all.Wait()
				t.Logf("%d of %d passed", passed.Load(), asked.Load())
				if n := passed.Load(); n < 24 || n > (10+10*20)/cost {
					t.Errorf("%d passed, want nearly %d: each comes up to some time late", n, (10+10*20)/cost)
				}
			})
		})
	}
}
