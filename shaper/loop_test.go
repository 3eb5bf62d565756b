package shaper

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tundish-io/tundish/lua"
)

// loops are what a dispatcher runs of some buckets, in virtual time, with a count of the
// scripts that it sends.
type loops struct {
	t      *testing.T
	redis  *redis.Client
	client *Client
	d      *Dispatcher

	mu      sync.Mutex
	scripts map[string]int
	most    int // of claims and questions before them, after which run ends; 0 any number
	stop    context.CancelFunc
}

// inBubble runs a test in virtual time, with a miniredis whose clock is that of the bubble.
func inBubble(t *testing.T, worker Worker, buckets []Bucket, test func(l *loops)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		mini := miniredis.NewMiniRedis()
		mini.ClockTTL(true)
		t.Cleanup(mini.Close)
		l := &loops{t: t, scripts: map[string]int{}, redis: redis.NewClient(&redis.Options{
			Dialer:                   func(context.Context, string, string) (net.Conn, error) { return mini.Dial() },
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})}
		t.Cleanup(func() { _ = l.redis.Close() })
		l.redis.AddHook(l)
		var err error
		if l.client, err = NewClient(ClientConfig{Redis: l.redis, Buckets: buckets}); err != nil {
			t.Fatal(err)
		}
		if l.d, err = NewDispatcher(DispatcherConfig{Redis: l.redis, Buckets: buckets, Workers: map[string]Worker{"test": worker}}); err != nil {
			t.Fatal(err)
		}
		test(l)
	})
}

// run has the dispatcher run for so long, or until it has looked for work too often.
func (l *loops) run(d time.Duration) {
	l.t.Helper()
	ctx, stop := context.WithTimeout(l.t.Context(), d)
	defer stop()
	l.mu.Lock()
	l.stop = stop
	l.mu.Unlock()
	if err := l.d.Run(ctx); err != nil {
		l.t.Error(err)
	}
}

func (l *loops) enqueue(jobs ...Job) {
	l.t.Helper()
	receipts, err := l.client.Enqueue(l.t.Context(), jobs...)
	for _, r := range receipts {
		if r.Refusal != nil {
			l.t.Fatalf("enqueue: %+v", r.Refusal)
		}
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// looks is how often the dispatcher has looked for work.
func (l *loops) looks() int { return l.scripts["claim"] + l.scripts["reserve"] }

func (l *loops) note(cmds ...redis.Cmder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, cmd := range cmds {
		for _, script := range lua.All() {
			if args := cmd.Args(); len(args) > 1 && strings.HasPrefix(cmd.Name(), "eval") && args[1] == script.SHA() {
				l.scripts[script.Name()]++
				if l.most > 0 && l.looks() > l.most && l.stop != nil {
					l.stop()
				}
			}
		}
	}
}

func (l *loops) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *loops) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		l.note(cmd)
		return next(ctx, cmd)
	}
}

func (l *loops) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		l.note(cmds...)
		return next(ctx, cmds)
	}
}

// A job that waits for a date beyond what a Duration holds costs nothing: dispatchers look as
// often as without it, and what is due before it leaves in time.
func TestFarDatesDoNotSpin(t *testing.T) {
	t.Parallel()
	bucket := func(parted int) Bucket {
		b := testBucket("b", 100)
		if parted != partedNot {
			f := DefaultFlowSettings()
			f.Key = FlowKeyJob
			b.Flow = &f
		}
		if parted == partedGroups {
			g := DefaultGroupSettings()
			g.Key = FlowKeyJob
			b.Group = &g
		}
		return b
	}
	for _, date := range []time.Time{
		time.Date(2318, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2600, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC),
		time.Date(200_000, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		for _, parted := range []int{partedNot, partedFlows, partedGroups} {
			t.Run(fmt.Sprint(date.Year(), " ", parted), func(t *testing.T) {
				t.Parallel()
				delivered := 0
				worker := WorkerFunc(func(context.Context, *Attempt) Outcome { delivered++; return Done(200) })
				inBubble(t, worker, []Bucket{bucket(parted)}, func(l *loops) {
					l.enqueue(Job{Bucket: "b", ID: "never", Flow: "f", Group: "g", Payload: []byte("x"), Delay: time.Hour})
					// The door refuses such a date by now. What was stored before stays.
					for _, key := range l.redis.Keys(l.t.Context(), "tundish:{b}:b:b:*").Val() {
						if name := strings.TrimPrefix(key, "tundish:{b}:b:b:"); strings.HasPrefix(name, "later:") || strings.HasPrefix(name, "due") {
							l.redis.ZAddXX(l.t.Context(), key, redis.Z{Member: l.redis.ZRange(l.t.Context(), key, 0, 0).Val()[0], Score: float64(date.UnixMicro())})
						}
					}
					l.enqueue(Job{Bucket: "b", ID: "soon", Flow: "f", Group: "g", Payload: []byte("x"), Delay: time.Minute})
					l.most = 2 * int(10*time.Minute/idleClaim)
					began := time.Now()
					l.run(10 * time.Minute)
					if delivered != 1 || l.looks() > l.most {
						l.t.Errorf("%d were delivered, and the dispatcher looked %d times in %s, want 1 and at most %d", delivered, l.looks(), time.Since(began), l.most)
					}
				})
			})
		}
	}
}
