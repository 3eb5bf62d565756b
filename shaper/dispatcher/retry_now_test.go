package dispatcher

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// Jobs that wait for another attempt leave at once, at the rate, in the order in which they were due, and with the attempts that they had. Those that
// wait for their first attempt keep their time, also where very many are due at one moment. One flow leaves the others as they are.
func TestRetryNow(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]shaper.Bucket{"none": rig.Bucket("b", 10), "flows": rig.Flowing("b", shaper.FlowKeyJob), "groups": rig.Grouped("b", 10)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b.Rate, b.Breaker.Failures = rig.PerSecond(10), 0
			b.Retry = b.Retry.WithSchedule(time.Hour)
			if b.Flow != nil {
				b.Flow.Rate = admission.Rate{}
			}
			type arrival struct {
				id      string
				attempt int
				at      time.Time
			}
			var mu sync.Mutex
			var arrived []arrival
			var works atomic.Bool
			worker := shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
				if !works.Load() {
					return shaper.Retry("http_503", "")
				}
				mu.Lock()
				defer mu.Unlock()
				arrived = append(arrived, arrival{a.ID, a.Number, time.Now()})
				return shaper.Done(200)
			})
			inBubble(t, worker, []shaper.Bucket{b}, func(l *loops) {
				t := l.t
				ctx := t.Context()
				stop, cancel := context.WithCancel(ctx)
				ended := make(chan error, 1)
				go func() { ended <- l.d.Run(stop) }()
				defer func() { cancel(); <-ended }()
				for i := range 30 {
					for _, flow := range []string{"f", "other"} {
						l.enqueue(shaper.Job{Bucket: "b", ID: fmt.Sprint(flow, i), Group: "g", Flow: flow, Payload: []byte("x")})
					}
				}
				var delayed []shaper.Job
				for i := range 1200 { // due at one moment, among the retries
					delayed = append(delayed, shaper.Job{Bucket: "b", ID: fmt.Sprint("delayed", i), Group: "g", Flow: "f", Payload: []byte("x"), Delay: 55 * time.Minute})
				}
				l.enqueue(delayed...)
				<-time.After(time.Minute)
				works.Store(true)
				<-time.After(time.Minute)
				by := l.client.Op.As("anna").Bucket("b")
				retry := by.RetryNow
				want := int64(60)
				if b.Flow != nil {
					flow := by.Flow("f")
					if b.Group != nil {
						flow = by.Group("g").Flow("f")
					}
					retry, want = flow.RetryNow, 30
				}
				began := time.Now()
				due := l.redis.ZRange(ctx, laterOf(b, "f"), 0, -1).Val()
				due = slices.DeleteFunc(due, func(id string) bool { return strings.HasPrefix(id, "delayed") })
				// A leftover of an id that is dead now is no retry: it keeps its time, and does not count.
				k, at := store.BucketKeys("b"), float64(time.Now().Add(50*time.Minute).UnixMicro())
				l.redis.HSet(ctx, k.Meta(), "leftover", "5 1 1 0 0 - {}")
				l.redis.ZAdd(ctx, laterOf(b, "f"), redis.Z{Score: at, Member: "leftover"})
				if n, err := retry(ctx); n != want || err != nil {
					t.Fatalf("%d jobs are due, want %d: %v", n, want, err)
				}
				if n, err := retry(ctx); n != 0 || err != nil {
					t.Errorf("again: %d jobs are due: %v", n, err)
				}
				if got := l.redis.ZScore(ctx, laterOf(b, "f"), "leftover").Val(); got != at {
					t.Errorf("the leftover is due at %.0f, was at %.0f", got, at)
				}
				<-time.After(30 * time.Second)
				mu.Lock()
				defer mu.Unlock()
				must.Be(t, int64(len(arrived)), want, "%d jobs arrived", len(arrived))
				for i, a := range arrived {
					if a.attempt != 2 || a.id != due[i] {
						t.Errorf("number %d is %s, attempt %d, want attempt 2 of %s", i, a.id, a.attempt, due[i])
					}
					if earliest := began.Add(time.Duration(i-1) * 100 * time.Millisecond); a.at.Before(earliest) {
						t.Errorf("number %d came %s after the retry: faster than the rate", i, a.at.Sub(began))
					}
				}
			})
		})
	}
}

func laterOf(b shaper.Bucket, flow string) string {
	k := store.BucketKeys("b")
	switch {
	case b.Group != nil:
		return k.Later("1:g" + flow)
	case b.Flow != nil:
		return k.Later(flow)
	}
	return k.Later("")
}
