//go:build soak

package soak

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tundish-io/tundish/internal/checker"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
	"github.com/tundish-io/tundish/test/harness"
)

// world is dispatchers around one store in a bubble of testing/synctest: its
// clock, which is that of the store, of the processes and of the network, goes on
// when all of them wait. Ten minutes pass in seconds, and no machine is too busy.
//
// The store is the embedded one. The scripts are those that a Redis runs, but no
// time passes while they do, and a round trip takes the same time always: what the
// real ones add is for TestSixteenDispatchers to say.
type world struct {
	store     *miniredis.Miniredis
	bucket    shaper.Bucket
	roundTrip time.Duration
	ledger    harness.Ledger
	history   checker.History
}

// newWorld makes one with a bucket and its backlog. The bubble begins with
// [world.enter], at the time at which all that was put in: bubbles have a calendar of
// their own.
func newWorld(t *testing.T, rate int, roundTrip time.Duration, jobs int) *world {
	t.Helper()
	w := &world{store: miniredis.NewMiniRedis(), bucket: pacedBucket(rate), roundTrip: roundTrip}
	t.Cleanup(w.store.Close)
	w.store.SetTime(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)) // the first instant of any bubble
	fillBucket(t, w.connect(t, 0), w.bucket, jobs, &w.history)
	return w
}

// enter makes the store one of the bubble of t, with all that is in it.
func (w *world) enter(t *testing.T) {
	t.Helper()
	outside := w.store
	w.store = miniredis.NewMiniRedis()
	w.store.ClockTTL(true)
	t.Cleanup(w.store.Close)
	for _, key := range outside.Keys() {
		switch kind := outside.Type(key); kind {
		case "hash":
			fields, err := outside.HKeys(key)
			if err != nil {
				t.Fatal(err)
			}
			for _, field := range fields {
				w.store.HSet(key, field, outside.HGet(key, field))
			}
		case "list":
			list, err := outside.List(key)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.store.Push(key, list...); err != nil {
				t.Fatal(err)
			}
		default:
			t.Fatalf("%s is a %s", key, kind)
		}
		if ttl := outside.TTL(key); ttl != 0 {
			t.Fatalf("%s expires in %s", key, ttl)
		}
	}
}

// connect is the connection of one process, that far away.
func (w *world) connect(t *testing.T, roundTrip time.Duration) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Dialer:                   func(context.Context, string, string) (net.Conn, error) { return redistest.WithRoom(w.store.Dial()) },
		MaxRetries:               -1,
		Protocol:                 2,
		DisableIdentity:          true,
		ContextTimeoutEnabled:    true,
		ConnMaxIdleTime:          -1, // its clock is not that of the bubble
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	client.AddHook(distance{roundTrip})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// run has so many dispatchers drain for so long, and ends them.
func (w *world) run(t *testing.T, dispatchers int, length time.Duration) {
	t.Helper()
	clients := make([]redis.UniversalClient, dispatchers)
	for i := range clients {
		client := w.connect(t, w.roundTrip)
		client.AddHook(&w.ledger)
		clients[i] = client
	}
	runDispatchers(t, clients, w.bucket, &w.history, func() { time.Sleep(length) })
}

// runDispatchers runs one dispatcher on each client until meanwhile returns.
func runDispatchers(t *testing.T, clients []redis.UniversalClient, b shaper.Bucket, history *checker.History, meanwhile func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, client := range clients {
		running.Go(func() {
			if err := runDispatcher(ctx, client, b, func(a *shaper.Attempt) { history.Delivered(a.ID, a.Number, time.Now()) }); err != nil {
				t.Error(err)
			}
		})
	}
	meanwhile()
	stop()
	running.Wait()
}

// runDispatcher runs one until ctx ends. It notes what departs; a delivery takes
// 20 ms.
func runDispatcher(ctx context.Context, client redis.UniversalClient, b shaper.Bucket, note func(a *shaper.Attempt)) error {
	worker := shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
		if a.Depart() != nil {
			return shaper.Returned("late")
		}
		note(a)
		time.Sleep(20 * time.Millisecond)
		return shaper.Done(200)
	})
	d, err := dispatcher.New(dispatcher.Config{
		Redis: client, Buckets: []shaper.Bucket{b}, Workers: map[string]shaper.Worker{b.Name: worker},
	})
	if err != nil {
		return err
	}
	return d.Run(ctx)
}

// distance is a hook that makes each round trip take its time.
type distance struct{ roundTrip time.Duration }

func (d distance) DialHook(next redis.DialHook) redis.DialHook { return next }

func (d distance) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		time.Sleep(d.roundTrip / 2)
		defer time.Sleep(d.roundTrip / 2)
		return next(ctx, cmd)
	}
}

func (d distance) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		time.Sleep(d.roundTrip / 2)
		defer time.Sleep(d.roundTrip / 2)
		return next(ctx, cmds)
	}
}
