package admission

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tundish-io/tundish/internal/redistest"
)

// However many callers come at once, by however many processes, a limit has no more
// keys than it may have. Those above count together, are counted and logged.
func TestMaxKeys(t *testing.T) {
	t.Parallel()
	for _, algorithm := range Algorithms() {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			const most, callers, processes = 25, 400, 4
			server := redistest.Start(t)
			limit := limitOfAll(algorithm, 10, 24*time.Hour)
			limit.MaxKeys = most
			limit.Tiers = map[string]Rate{"pro": {Count: 10, Per: 31 * 24 * time.Hour, Unit: UnitRequests}}
			registry, log := prometheus.NewRegistry(), &syncBuffer{}
			metrics := NewMetrics(registry, []string{"l"})
			var own, overflow, refused atomic.Int64
			var all sync.WaitGroup
			for process := range processes {
				l, err := NewLimiter(LimiterConfig{
					Redis: server.Client(), Limits: []Limit{limit}, Timeout: 10 * time.Second, Metrics: metrics, Logger: slog.New(slog.NewTextHandler(log, nil)),
				})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(l.Close)
				for worker := range 8 {
					all.Go(func() {
						for i := worker; i < callers; i += 8 {
							d, err := l.AskKey(t.Context(), "l", "", fmt.Sprint((i*7+process*101)%callers), 1)
							switch {
							case err != nil:
								t.Error(err)
							case d.Overflow:
								overflow.Add(1)
								if !d.Allowed {
									refused.Add(1)
								}
							case !d.Allowed:
								t.Errorf("a caller with a key of its own is refused: %+v", d)
							default:
								own.Add(1)
							}
						}
					})
				}
			}
			all.Wait()
			client := server.Client()
			keys := client.Keys(t.Context(), "tundish:{l:l}:*").Val()
			keys = slices.DeleteFunc(keys, func(key string) bool {
				return key == "tundish:{l:l}:conf" || strings.Contains(key, ":keys:") || strings.Contains(key, ":overflow:")
			})
			if len(keys) != most || own.Load() != most*processes || overflow.Load()-refused.Load() != 10 {
				t.Errorf("%d keys, %d questions of callers with one, %d of others, of which %d were refused", len(keys), own.Load(), overflow.Load(), refused.Load())
			}
			if n := testutil.ToFloat64((*metrics.limits.Load())["l"].overflow); int64(n) != overflow.Load() {
				t.Errorf("the metric says %.0f, want %d", n, overflow.Load())
			}
			if n := strings.Count(log.String(), "share one"); n < 1 || n > processes {
				t.Errorf("%d lines in the log: %s", n, log)
			}
			// A tier has a shared key of its own, and counts with the others.
			l := newLimiter(t, client, limit)
			if d, err := l.AskKey(t.Context(), "l", "pro", "new", 1); err != nil || !d.Allowed || !d.Overflow {
				t.Errorf("of another tier: %+v, %v", d, err)
			}
			for _, key := range client.Keys(t.Context(), "tundish:{l:l}:*").Val() {
				if ttl := client.PTTL(t.Context(), key).Val(); ttl <= 0 && !strings.HasSuffix(key, ":conf") {
					t.Errorf("%s does not expire", key)
				}
			}
		})
	}
}

// A state does not outlive what the count of keys reckons with.
func TestStateLife(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newLimiter(t, server.Client())
	for _, algorithm := range Algorithms() {
		for _, per := range []time.Duration{100 * time.Millisecond, time.Second, time.Hour, 31 * 24 * time.Hour} {
			for _, precision := range []int64{1, 10} {
				limit := limitOfAll(algorithm, 7, per)
				limit.Name = strings.ReplaceAll(fmt.Sprint(algorithm, "-", per.Milliseconds(), "-", precision), "_", "-")
				if algorithm == SlidingWindowCounter {
					limit.Precision = precision
				}
				if _, err := l.Allow(t.Context(), limit, "k", 7); err != nil {
					t.Fatal(err)
				}
				// A clock that jitters adds up to a second, which the bound must leave room for.
				ttl := server.Client().PTTL(t.Context(), "tundish:{l:"+limit.Name+"}:k").Val()
				if life := limit.WithDefaults().StateLife(); ttl+time.Second > life || life > 2*per+5*time.Second {
					t.Errorf("%s: a TTL of %s, a life of %s", limit.Name, ttl, life)
				}
			}
		}
	}
}

// syncBuffer is a buffer for several writers.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
