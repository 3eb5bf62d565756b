package test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
)

// TestDispatcherDies: kill -9 of one of two dispatchers loses nothing, doubles
// only what was in flight, and makes no burst.
func TestDispatcherDies(t *testing.T) {
	const rate, jobs = 200, 2000
	quietly(t, func(t *testing.T, stall *stallWatch) string {
		server := redistest.Start(t)
		s := start(t, server, plan{rate: rate, dispatchers: 2, lease: 5 * time.Second, hold: 200 * time.Millisecond})
		s.post("crash", jobs)
		await(t, 20*time.Second, "half of the jobs have arrived", func() bool {
			return s.history.Check().Delivered >= jobs/2
		})
		s.dispatchers[0].kill()
		leases, err := server.Client().ZRange(t.Context(), "tundish:{"+bucketName+"}:b:"+bucketName+":leases", 0, -1).Result()
		if err != nil {
			t.Fatal(err)
		}
		killed := time.Now()
		inFlight := make(map[string]bool, len(leases))
		for _, id := range leases {
			inFlight[id] = true
		}
		r := s.awaitDelivered(40 * time.Second)
		report(t, rate, r)
		t.Logf("%d jobs were in flight at the kill, %d came twice, all had arrived %s after it",
			len(leases), len(r.Duplicated), time.Since(killed).Round(time.Millisecond))
		if err := r.Err(); err != nil {
			t.Fatal(err)
		}
		for id := range r.Duplicated {
			if !inFlight[id] {
				return fmt.Sprintf("job %s came twice and was not in flight at the kill", id)
			}
		}
		return stall.crowded(r.MostIn, rate, steady, time.Second)
	})
}

// TestRedisDies: kill -9 of Redis with its append-only file on, five times
// under load: what was answered 202 is delivered. With "everysec", as Redis
// does, the file would be written after the answer, not before it, for as long as
// a slow disk takes for the fsync of a second ago: that is for the disk to lose.
func TestRedisDies(t *testing.T) {
	t.Parallel()
	const rate, kills = 200, 5
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	s := start(t, server, plan{rate: rate, dispatchers: 2, lease: 3 * time.Second})

	stop := make(chan struct{})
	var load sync.WaitGroup
	var mu sync.Mutex
	answers := map[int]int{}
	for caller := range 8 {
		load.Go(func() {
			tick := time.NewTicker(40 * time.Millisecond)
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-tick.C:
				}
				status := s.send(fmt.Sprintf("c%d-%d", caller, i))
				mu.Lock()
				answers[status]++
				mu.Unlock()
			}
		})
	}
	for kill := range kills {
		before := s.history.Check().Delivered
		await(t, 20*time.Second, fmt.Sprintf("deliveries go on before kill %d", kill+1), func() bool {
			return s.history.Check().Delivered >= before+150
		})
		server.Kill()
		if err := server.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	load.Wait()
	r := s.awaitDelivered(60 * time.Second)
	report(t, rate, r)
	t.Logf("answers by status: %v", answers)
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	if r.Admitted == 0 {
		t.Fatal("nothing was admitted")
	}
}
