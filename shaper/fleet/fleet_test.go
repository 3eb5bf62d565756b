package fleet_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/fleet"
	"github.com/tundish-io/tundish/shaper/internal/metrics"
	"github.com/tundish-io/tundish/tundishtest"
)

// process is one of the fleet, whose work the test makes up.
type process struct {
	*metrics.Metrics

	stop func() // as SIGTERM does
	kill func() // as kill -9 does
	link *cut
	busy atomic.Int64
}

// cut is a connection that breaks when the test says so.
type cut struct {
	redis.UniversalClient

	away atomic.Bool
	lost atomic.Bool // commands are carried out, and their replies are lost
}

func (c *cut) Process(ctx context.Context, cmd redis.Cmder) error {
	if c.away.Load() {
		cmd.SetErr(context.DeadlineExceeded)
		return context.DeadlineExceeded
	}
	err := c.UniversalClient.Process(ctx, cmd)
	if c.lost.Load() {
		cmd.SetErr(context.DeadlineExceeded)
		err = context.DeadlineExceeded
	}
	return err
}

func (c *cut) Pipeline() redis.Pipeliner {
	p := c.UniversalClient.Pipeline()
	if c.away.Load() {
		return brokenPipeline{p}
	}
	return p
}

type brokenPipeline struct{ redis.Pipeliner }

func (brokenPipeline) Exec(context.Context) ([]redis.Cmder, error) {
	return nil, context.DeadlineExceeded
}

func startProcess(t *testing.T, conn redis.UniversalClient, name string, buckets ...string) *process {
	t.Helper()
	registry, link := prometheus.NewRegistry(), &cut{UniversalClient: conn}
	p := &process{link: link}
	about := func() fleet.About {
		return fleet.About{Name: name, Host: "web-1", Version: "v1", Revision: 7, Works: name == "dispatcher", Busy: int(p.busy.Load())}
	}
	m, err := fleet.NewMember(fleet.Config{
		Redis: link, Registerer: registry, About: about, Buckets: func() []string { return buckets },
	})
	if err != nil {
		t.Fatal(err)
	}
	if p.Metrics, err = metrics.New(registry); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.Run(ctx)
	}()
	p.stop = func() { cancel(); <-ended }
	p.kill = func() { link.away.Store(true); p.stop() }
	t.Cleanup(p.stop)
	return p
}

// pass lets time pass, which in a bubble takes none.
func pass(d time.Duration) { <-time.After(d) }

// counts has the process count.
func (p *process) counts(bucket string, arrived, refused, departed, failed int) {
	for range arrived {
		p.CountReceipt(&shaper.Receipt{Bucket: bucket})
	}
	for range refused {
		p.CountReceipt(&shaper.Receipt{Bucket: bucket, Refusal: &shaper.Refusal{Reason: shaper.ReasonLimit}})
	}
	for range departed {
		p.CountDeparture(bucket, time.Millisecond, "")
	}
	for range failed {
		p.CountOutcome(bucket, shaper.ResultRetry, shaper.Retry("http_500", ""), time.Millisecond, "")
	}
}

func readSnapshot(t *testing.T, v *fleet.View) *fleet.Snapshot {
	t.Helper()
	s, err := v.Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func names(s *fleet.Snapshot) string {
	var all []string
	for i := range s.Processes {
		all = append(all, s.Processes[i].Name)
	}
	return strings.Join(all, " ")
}

// A process is in the fleet while it tells that it lives, and for 15 s after it was killed.
func TestProcesses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn := tundishtest.Open(t).Redis()
		v := fleet.NewView(conn, 0)
		if s := readSnapshot(t, v); len(s.Processes) != 0 {
			t.Errorf("an empty fleet has %s", names(s))
		}
		d := startProcess(t, conn, "dispatcher", "plain", "other")
		p := startProcess(t, conn, "producer", "plain")
		d.busy.Store(3)
		d.counts("plain", 0, 0, 100, 0)
		pass(6 * time.Second)
		s := readSnapshot(t, v)
		if names(s) != "dispatcher producer" {
			t.Fatalf("there are %s", names(s))
		}
		is := s.Processes[0]
		if is.Host != "web-1" || is.Version != "v1" || is.Revision != 7 || is.Busy != 3 || is.Buckets != 2 || is.P99Lateness != 0.001 || !is.Works || s.Now.Sub(is.LastHeartbeat) > 6*time.Second || s.Now.Sub(is.Since) > 7*time.Second {
			t.Errorf("told is %+v", is)
		}
		if !s.IsServed("plain") || !s.IsServed("other") || s.IsServed("none") {
			t.Error("which buckets are served")
		}
		d.kill()
		pass(8 * time.Second)
		if s := readSnapshot(t, v); names(s) != "dispatcher producer" {
			t.Errorf("8 s after a kill there are %s", names(s))
		}
		pass(8 * time.Second)
		if s := readSnapshot(t, v); names(s) != "producer" || s.IsServed("plain") {
			t.Errorf("16 s after a kill there are %s", names(s))
		}
		p.stop()
		if s := readSnapshot(t, v); names(s) != "" {
			t.Errorf("after a stop there are %s", names(s))
		}
		if n, err := conn.HLen(t.Context(), "tundish:{fleet}:processes").Result(); err != nil || n > 2 {
			t.Errorf("%d processes are kept, %v", n, err)
		}
		pass(61 * time.Minute)
		if keys, err := conn.Keys(t.Context(), "tundish:{fleet}:counts:*").Result(); err != nil || len(keys) > 0 {
			t.Errorf("left are %v, %v", keys, err)
		}
	})
}

// What all processes count is in the minute, in the rate and in the history.
func TestCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn := tundishtest.Open(t).Redis()
		v := fleet.NewView(conn, 0)
		one, two, p := startProcess(t, conn, "dispatcher", "plain"), startProcess(t, conn, "dispatcher", "plain"), startProcess(t, conn, "producer", "plain")
		// Half a second after a heartbeat begins: what is counted at the very instant of a heartbeat may be in either.
		pass(time.Until(time.Now().Truncate(fleet.HeartbeatInterval).Add(fleet.HeartbeatInterval + fleet.Watched/2)))
		for range 60 {
			one.counts("plain", 0, 0, 7, 1)
			two.counts("plain", 0, 0, 3, 0)
			p.counts("plain", 10, 2, 0, 0)
			pass(time.Second)
		}
		pass(time.Second)
		s := readSnapshot(t, v)
		if got := fmt.Sprint(s.Minute("plain")); got != "[50 50 50 50 50 50 50 50 50 50 50 50]" {
			t.Errorf("the minute is %s", got)
		}
		if s.Rate("plain") != 10 || s.Rate("none") != 0 {
			t.Errorf("%g a second", s.Rate("plain"))
		}
		pass(20 * time.Second)
		if got := readSnapshot(t, v).Minute("plain"); got[11] != 0 || got[10] != 0 || got[0] != 50 {
			t.Errorf("20 s later the minute is %v", got)
		}
		sum := func() fleet.Counts {
			points, err := v.History(t.Context(), "plain")
			if err != nil || len(points) != fleet.Points {
				t.Fatal(len(points), err)
			}
			var all fleet.Counts
			for _, p := range points {
				all.Arrived, all.Refused, all.Departed, all.Failed = all.Arrived+p.Arrived, all.Refused+p.Refused, all.Departed+p.Departed, all.Failed+p.Failed
			}
			return all
		}
		if got := sum(); got != (fleet.Counts{Arrived: 600, Refused: 120, Departed: 600, Failed: 60}) {
			t.Errorf("the history has %+v", got)
		}
		// Redis comes back empty, and what was counted before is not counted again.
		if err := conn.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		one.counts("plain", 0, 0, 5, 0)
		pass(12 * time.Second)
		if s := readSnapshot(t, v); names(s) != "dispatcher dispatcher producer" || !s.IsServed("plain") {
			t.Errorf("after a loss there are %s", names(s))
		}
		if got := sum(); got.Departed != 5 || got.Arrived != 0 {
			t.Errorf("after a loss the history has %+v", got)
		}
		for _, p := range []*process{one, two, p} {
			p.stop()
		}
		pass(25 * time.Hour)
		if got := sum(); got != (fleet.Counts{}) {
			t.Errorf("after a day the history has %+v", got)
		}
		if keys, err := conn.Keys(t.Context(), "tundish:{fleet}:history:*").Result(); err != nil || len(keys) > 0 {
			t.Errorf("left are %v, %v", keys, err)
		}
	})
}

// While somebody looks, each second tells what was counted in it; the sums are exact, also of processes that come and go. One that is killed is
// told of.
func TestWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn := tundishtest.Open(t).Redis()
		w := fleet.NewWatcher(fleet.NewView(conn, 0), func(err error) { t.Error(err) })
		defer w.Close()
		d, p := startProcess(t, conn, "dispatcher", "plain"), startProcess(t, conn, "producer", "plain")
		d.counts("plain", 0, 0, 1000, 0) // before somebody looked
		pass(6 * time.Second)
		seconds, end := w.Watch("plain")
		other, endOther := w.Watch("")
		defer endOther()
		go func() {
			for range other {
			}
		}()
		var mu sync.Mutex
		var sum fleet.Counts
		binned, lost := int64(0), ""
		told := make(chan struct{})
		go func() {
			defer close(told)
			for s := range seconds {
				mu.Lock()
				c := s.Buckets["plain"]
				sum.Arrived, sum.Refused, sum.Departed = sum.Arrived+c.Arrived, sum.Refused+c.Refused, sum.Departed+c.Departed
				for _, b := range s.Bins {
					binned += b.Departed
					if b.Departed > 7 {
						t.Errorf("%d in a bin", b.Departed)
					}
				}
				lost += strings.Join(s.Lost, ",")
				mu.Unlock()
			}
		}()
		pass(7 * time.Second) // by now all processes know that somebody looks
		mu.Lock()
		if sum != (fleet.Counts{}) {
			t.Errorf("what was counted before somebody looked is told: %+v", sum)
		}
		mu.Unlock()
		now := time.Now()
		pass(now.Truncate(100 * time.Millisecond).Add(150 * time.Millisecond).Sub(now)) // to the middle of a bin

		// Five seconds, seven in each 100 ms.
		for range 50 {
			d.counts("plain", 0, 0, 7, 0)
			p.counts("plain", 5, 1, 0, 0)
			pass(100 * time.Millisecond)
		}
		late := startProcess(t, conn, "dispatcher", "plain")
		late.counts("plain", 0, 0, 11, 0)
		late.stop()
		pass(3 * time.Second)
		mu.Lock()
		if sum != (fleet.Counts{Arrived: 250, Refused: 50, Departed: 361}) || binned != 350 {
			t.Errorf("told are %+v, in bins %d", sum, binned)
		}
		mu.Unlock()
		d.kill()
		pass(20 * time.Second)
		end()
		<-told
		if lost != "dispatcher on web-1" {
			t.Errorf("lost is %q", lost)
		}
	})
}

// A viewer that does not read is dropped, and holds up no other one.
func TestSlowViewer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := fleet.NewWatcher(fleet.NewView(tundishtest.Open(t).Redis(), 0), nil)
		defer w.Close()
		slow, end := w.Watch("")
		defer end()
		quick, endQuick := w.Watch("")
		defer endQuick()
		for range 10 {
			if _, open := <-quick; !open {
				t.Fatal("the quick one was dropped")
			}
		}
		n := 0
		for range slow {
			n++
		}
		if n != 2 {
			t.Errorf("the slow one had %d", n)
		}
	})
}
