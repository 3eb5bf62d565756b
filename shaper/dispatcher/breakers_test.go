package dispatcher

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/producer"
)

// A breaker that opens and one that closes is logged once by all dispatchers together, by the name of what it belongs to.
func TestBreakersAreLoggedOnce(t *testing.T) {
	flows := rig.Grouped("b", 1000)
	ofBucket := rig.Bucket("b", 1000)
	ofBucket.Adapt.Scope = shaper.ScopeBucket
	pooled := rig.Pooled("b", 1000, 1, shaper.Pool{Name: "vendor", Rate: rig.PerSecond(1000)})
	pooled.Adapt.Scope = shaper.ScopePool
	for name, c := range map[string]struct {
		bucket shaper.Bucket
		want   []string // labels behind the name of the bucket
	}{
		"flows":  {flows, []string{` group=g flow=f0`, ` group=g flow=f1`}},
		"bucket": {ofBucket, []string{""}},
		"pool":   {pooled, []string{" pool=vendor"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mini := miniredis.NewMiniRedis()
				t.Cleanup(mini.Close)
				conn := rig.BubbleClient(t, func() (net.Conn, error) { return mini.Dial() })
				t.Cleanup(func() { _ = conn.Close() })
				b := c.bucket
				b.Breaker = shaper.Breaker{Failures: 5, OpenFor: 10 * time.Second, MaxOpen: 10 * time.Second}
				client := must.Get(producer.New(producer.Config{Timeout: rig.Patience, Redis: conn, Buckets: []shaper.Bucket{b}}))(t)
				t.Cleanup(client.Close)
				var works atomic.Bool
				worker := shaper.WorkerFunc(func(context.Context, *shaper.Attempt) shaper.Outcome {
					if works.Load() {
						return shaper.Done(200)
					}
					outcome := shaper.Retry("http_500", "")
					outcome.Signal = shaper.SignalFailed
					return outcome
				})
				log := &lockedBuffer{}
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error)
				for range 2 {
					d := must.Get(New(Config{
						Redis: conn, Buckets: []shaper.Bucket{b}, Workers: rig.Workers([]shaper.Bucket{b}, worker),
						Logger: slog.New(slog.NewTextHandler(log, nil)),
					}))(t)
					go func() { ended <- d.Run(ctx) }()
				}
				synctest.Wait()
				for i := range 100 {
					job := shaper.Job{Bucket: "b", ID: fmt.Sprint("j", i), Payload: []byte("x")}
					if b.Group != nil {
						job.Group, job.Flow = "g", fmt.Sprint("f", i%2)
					}
					if receipts, err := client.Enqueue(t.Context(), job); err != nil || receipts[0].Refusal != nil {
						t.Fatalf("%+v, %v", receipts, err)
					}
				}
				labels := func(message string) []string {
					found := []string{}
					for _, line := range log.lines(message) {
						found = append(found, regexp.MustCompile(`bucket=b(.*?)(?: reason=http_500)?\n`).FindStringSubmatch(line)[1])
					}
					slices.Sort(found)
					return found
				}
				const opened = "a circuit breaker opened: its receiver does not work; only a probe leaves now and then"
				const closed = "a circuit breaker closed: its receiver works again"
				<-time.After(time.Minute) // five probes fail, of the bubble
				if got := labels(opened); !slices.Equal(got, c.want) {
					t.Errorf("opened: %q, want %q", got, c.want)
				}
				if got := labels(closed); len(got) > 0 {
					t.Errorf("closed: %q", got)
				}
				works.Store(true)
				<-time.After(time.Minute)
				if got := labels(closed); !slices.Equal(got, c.want) {
					t.Errorf("closed: %q, want %q", got, c.want)
				}
				if got := labels(opened); !slices.Equal(got, c.want) {
					t.Errorf("opened in the end: %q, want %q", got, c.want)
				}
				stop()
				for range 2 {
					if err := <-ended; err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}
