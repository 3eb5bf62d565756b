// Package tundishtest helps to test programs that use Tundish. It has a store inside the process.
//
// In a bubble of testing/synctest hours pass at once, and the times are exact:
//
//	func TestReminder(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			c := tundishtest.Open(t)
//			c.Handle(reminders.Work(tundish.Settings{Rate: "1/s"}, remind))
//			tundishtest.Run(t, c)
//			reminders.Enqueue(t.Context(), c, Reminder{"ada"}, tundish.In(3*time.Hour))
//			tundishtest.Drain(t, c, reminders.Name()) // three hours, in no time
//		})
//	}
//
// Outside of a bubble the same works, and takes the time it takes. The store keeps everything in memory, and is for tests and examples only.
package tundishtest

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/tundish-io/tundish"
	"github.com/tundish-io/tundish/internal/embedded"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper/operator"
)

// connections is high enough that nothing waits for a connection: the timer of such a wait belongs to no bubble.
const connections = 1000

// Open returns a client on a store of its own; both end with the test. It logs nothing; the change functions edit its configuration.
func Open(t testing.TB, change ...func(*tundish.Config)) *tundish.Client {
	t.Helper()
	mini := miniredis.NewMiniRedis()
	mini.ClockTTL(true) // keys expire by the clock
	t.Cleanup(mini.Close)
	conn, err := redisconn.Connect("redis://tundishtest", redisconn.Options{
		Dial:     func(context.Context, string, string) (net.Conn, error) { return redistest.WithRoom(mini.Dial()) },
		PoolSize: connections, NoFunctions: true,
	})
	if err != nil {
		t.Fatalf("tundishtest: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	cfg := tundish.Config{Redis: conn}
	for _, f := range change {
		f(&cfg)
	}
	c, err := tundish.New(cfg)
	if err != nil {
		t.Fatalf("tundishtest: %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Run runs a client until the test ends, or until stop is called, which waits for the end. An error of [tundish.Client.Run] fails the test.
func Run(t testing.TB, c *tundish.Client) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := c.Run(ctx); err != nil {
			t.Errorf("tundishtest: %v", err)
		}
	}()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	return stop
}

// Drain waits until no job of a bucket waits, is in flight, or is due later: all are done, dead or gone. The time between two polls grows to 10 s,
// so Drain may return late, by up to 10 % of the time that it waited. Only Drain is late: functions that work jobs are called at their exact times.
func Drain(t testing.TB, c *tundish.Client, bucket string) {
	t.Helper()
	for wait := 20 * time.Millisecond; ; wait = min(wait+wait/10, 10*time.Second) {
		if i := Info(t, c, bucket); i.Unfinished+i.Scheduled+i.Callbacks == 0 {
			return
		}
		<-time.After(wait)
	}
}

// Info returns an operator's view of a bucket: the numbers of waiting jobs, jobs in flight and dead letters.
func Info(t testing.TB, c *tundish.Client, bucket string) operator.BucketInfo {
	t.Helper()
	op, err := operator.New(operator.Config{Redis: c.Redis()})
	if err != nil {
		t.Fatalf("tundishtest: %v", err)
	}
	info, err := op.Bucket(bucket).Info(t.Context())
	if err != nil {
		t.Fatalf("tundishtest: bucket %q: %v", bucket, err)
	}
	return info
}

// Store is a Redis inside the process, on a port of this machine.
type Store struct{ store *embedded.Store }

// StartStore starts a store, for examples and tests that need an address. Close it at the end.
func StartStore() (*Store, error) {
	store, err := embedded.Start("127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return &Store{store}, nil
}

// URL returns the URL for [tundish.Open].
func (s *Store) URL() string { return s.store.URL() }

// Close stops the store, and drops its data.
func (s *Store) Close() { s.store.Close() }
