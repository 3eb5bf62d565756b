package test

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
	"github.com/tundish-io/tundish/shaper"
)

// world is dispatchers around one store in a bubble of testing/synctest: its
// clock, which is that of the store, of the processes and of the network, goes on
// when all of them wait. Ten minutes pass in seconds, and no machine is too busy.
//
// The store is the embedded one. The scripts are those that a Redis runs, but no
// time passes while they do, and a round trip takes the same time always: what the
// real ones add is for TestSixteenDispatchers to say.
type world struct {
	t         *testing.T
	store     *miniredis.Miniredis
	bucket    shaper.Bucket
	roundTrip time.Duration
	ledger    ledger
	history   checker.History
}

// newWorld makes one with a bucket, inside the bubble of t.
func newWorld(t *testing.T, rate int, roundTrip time.Duration) *world {
	t.Helper()
	w := &world{t: t, store: miniredis.NewMiniRedis(), bucket: pacedBucket(rate), roundTrip: roundTrip}
	w.store.ClockTTL(true)
	t.Cleanup(w.store.Close)
	return w
}

// connect is the connection of one process, that far away.
func (w *world) connect(roundTrip time.Duration) *redis.Client {
	client := redis.NewClient(&redis.Options{
		Dialer:                   func(context.Context, string, string) (net.Conn, error) { return w.store.Dial() },
		MaxRetries:               -1,
		Protocol:                 2,
		DisableIdentity:          true,
		ContextTimeoutEnabled:    true,
		ConnMaxIdleTime:          -1, // its clock is not that of the bubble
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	client.AddHook(distance{roundTrip})
	w.t.Cleanup(func() { _ = client.Close() })
	return client
}

// fill puts jobs in, from nearby.
func (w *world) fill(jobs int) {
	w.t.Helper()
	fillBucket(w.t, w.connect(0), w.bucket, jobs, &w.history)
}

// run has so many dispatchers drain for so long, and ends them.
func (w *world) run(dispatchers int, length time.Duration) {
	w.t.Helper()
	clients := make([]redis.UniversalClient, dispatchers)
	for i := range clients {
		client := w.connect(w.roundTrip)
		client.AddHook(&w.ledger)
		clients[i] = client
	}
	runDispatchers(w.t, clients, w.bucket, &w.history, func() { time.Sleep(length) })
}

// took is how long a delivery of [runDispatchers] takes.
const took = 20 * time.Millisecond

// runDispatchers runs one dispatcher on each client until meanwhile returns.
func runDispatchers(t *testing.T, clients []redis.UniversalClient, b shaper.Bucket, history *checker.History, meanwhile func()) {
	t.Helper()
	worker := shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
		if a.Depart() != nil {
			return shaper.Returned("late")
		}
		history.Delivered(a.ID, a.Number, time.Now())
		time.Sleep(took)
		return shaper.Done(200)
	})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, client := range clients {
		d, err := shaper.NewDispatcher(shaper.DispatcherConfig{
			Redis: client, Buckets: []shaper.Bucket{b}, Workers: map[string]shaper.Worker{b.Worker: worker},
		})
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			if err := d.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	meanwhile()
	stop()
	running.Wait()
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
