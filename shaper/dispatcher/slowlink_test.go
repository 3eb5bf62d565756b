package dispatcher

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/producer"
)

// pipeline is a link to Redis on which so many bytes pass in a second, of all
// connections together.
type pipeline struct {
	perSecond int64

	mu   sync.Mutex
	free time.Time // when what was sent has passed
}

// pass waits until so many bytes have passed behind those before them.
func (l *pipeline) pass(bytes int) {
	l.mu.Lock()
	now := time.Now()
	if l.free.Before(now) {
		l.free = now
	}
	l.free = l.free.Add(time.Duration(int64(bytes) * int64(time.Second) / l.perSecond))
	wait := l.free.Sub(now)
	l.mu.Unlock()
	<-time.After(wait)
}

// slowConn is a connection whose replies pass a link. What the server has
// written waits here: an embedded store answers one at a time, and holds the others up until
// its answer is read.
type slowConn struct {
	net.Conn
	link *pipeline
	news chan struct{}

	mu       sync.Mutex
	arrived  []byte
	err      error
	deadline time.Time
}

func newSlowConn(conn net.Conn, link *pipeline) *slowConn {
	c := &slowConn{Conn: conn, link: link, news: make(chan struct{}, 1)}
	go func() {
		b := make([]byte, 64<<10)
		for {
			n, err := conn.Read(b)
			c.mu.Lock()
			c.arrived, c.err = append(c.arrived, b[:n]...), err
			c.mu.Unlock()
			select {
			case c.news <- struct{}{}:
			default:
			}
			if err != nil {
				return
			}
		}
	}()
	return c
}

func (c *slowConn) SetReadDeadline(at time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = at
	return nil
}

func (c *slowConn) SetDeadline(at time.Time) error {
	_ = c.SetReadDeadline(at)
	return c.SetWriteDeadline(at)
}

func (c *slowConn) Read(b []byte) (int, error) {
	c.mu.Lock()
	for len(c.arrived) == 0 && c.err == nil {
		late, wait := (<-chan time.Time)(nil), time.Until(c.deadline)
		if !c.deadline.IsZero() {
			late = time.After(wait)
		}
		c.mu.Unlock()
		select {
		case <-c.news:
		case <-late:
			return 0, os.ErrDeadlineExceeded
		}
		c.mu.Lock()
	}
	n := copy(b[:min(len(b), 16<<10)], c.arrived)
	c.arrived = c.arrived[n:]
	err, deadline := c.err, c.deadline
	c.mu.Unlock()
	if n > 0 {
		err = nil
	}
	c.link.pass(n)
	if !deadline.IsZero() && time.Now().After(deadline) {
		return 0, os.ErrDeadlineExceeded
	}
	return n, err
}

// A slow link to Redis slows, and kills no job: each is delivered once, though nothing
// has crashed and no other dispatcher takes its lease.
func TestSlowLinkKillsNoJob(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                  string
		perSecond             int64
		jobs, size, processes int
		within                time.Duration
	}{
		{"256 jobs of 256 KiB over 15 MiB/s", 15 << 20, 256, 256 << 10, 2, 20 * time.Second},
		{"jobs of 64 KiB over 1 MiB/s", 1 << 20, 100, 64 << 10, 2, 2 * time.Minute},
		{"one answer takes longer than a lease", 200 << 10, 4, 900 << 10, 1, 2 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := miniredis.NewMiniRedis()
				store.ClockTTL(true)
				t.Cleanup(store.Close)
				b := rig.Bucket("b", 2000)
				b.MaxPayload, b.MaxInFlight = 1<<20, 512
				client := must.Get(rig.NewActors(producer.Config{Redis: rig.BubbleClient(t, store.Dial), Buckets: []shaper.Bucket{b}}))(t)
				for i := range c.jobs {
					must.Get(client.Enqueue(t.Context(), shaper.Job{Bucket: "b", ID: fmt.Sprint("j", i), Payload: make([]byte, c.size)}))(t)
				}
				link := &pipeline{perSecond: c.perSecond}
				ctx, stop := context.WithCancel(t.Context())
				var mu sync.Mutex
				delivered, done := map[string]int{}, make(chan struct{})
				worker := shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
					if a.Depart() != nil {
						return shaper.Returned("late")
					}
					mu.Lock()
					defer mu.Unlock()
					if delivered[a.ID]++; len(delivered) == c.jobs && delivered[a.ID] == 1 {
						close(done)
					}
					return shaper.Done(200)
				})
				var running sync.WaitGroup
				for range c.processes {
					slow := rig.BubbleClient(t, func() (net.Conn, error) {
						conn, err := store.Dial()
						if err != nil {
							return nil, err
						}
						return newSlowConn(conn, link), nil
					})
					d := must.Get(New(Config{
						Redis: slow, Buckets: []shaper.Bucket{b}, Workers: rig.Workers([]shaper.Bucket{b}, worker), Lease: 3 * time.Second, Concurrency: 256,
					}))(t)
					running.Go(func() {
						if err := d.Run(ctx); err != nil {
							t.Error(err)
						}
					})
				}
				began := time.Now()
				select {
				case <-done:
				case <-time.After(c.within):
				}
				took := time.Since(began)
				stop()
				running.Wait()
				info := must.Get(client.Op.BucketInfos(t.Context(), "b"))(t)
				more := 0
				for _, n := range delivered {
					more += n - 1
				}
				t.Logf("%d of %d jobs delivered in %s, %d of them again; %d dead", len(delivered), c.jobs, took, more, info[0].Dead)
				if len(delivered) != c.jobs || more > 0 || info[0].Dead > 0 {
					t.Error("not every job was delivered once")
				}
			})
		})
	}
}
