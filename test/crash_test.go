package test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
)

// TestRedisDies is P1: kill -9 of Redis with its append-only file on, again and again
// under load: what was answered 202 is delivered. With "everysec", as Redis
// does, the file would be written after the answer, not before it, for as long as
// a slow disk takes for the fsync of a second ago: that is for the disk to lose.
func TestRedisDies(t *testing.T) {
	t.Parallel()
	const rate = 200
	kills := 2
	if redistest.Soak {
		kills = 5
	}
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
