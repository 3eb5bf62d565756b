package admission

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
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
		lasts     = 5 * time.Second
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
