//go:build soak

package test

import (
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
)

// TestDispatcherPauses: one of two dispatchers stands still for twice its lease
// and goes on. What it held is delivered by the other, its permits are void,
// and its outcomes come too late to count.
func TestDispatcherPauses(t *testing.T) {
	const rate, jobs, lease, hold = 200, 1200, time.Second, 300 * time.Millisecond
	quietly(t, func(t *testing.T, stall *stallWatch) string {
		server := redistest.Start(t)
		s := start(t, server, plan{rate: rate, dispatchers: 2, lease: lease, hold: hold})
		s.post("pause", jobs)
		await(t, 10*time.Second, "deliveries go on", func() bool { return s.history.Check().Delivered >= 200 })
		busy := s.busiest() // the other one may stand by, and hold nothing
		s.dispatchers[busy].signal(t, syscall.SIGSTOP)
		stopped := time.Now()
		leases, err := server.Client().ZRange(t.Context(), "tundish:{"+bucketName+"}:b:"+bucketName+":leases", 0, -1).Result()
		if err != nil {
			t.Fatal(err)
		}
		await(t, 10*time.Second, "its leases ran out twice and were taken back", func() bool {
			return time.Since(stopped) >= 2*lease && strings.Contains(s.dispatchers[1-busy].output.String(), "swept: ")
		})
		s.dispatchers[busy].signal(t, syscall.SIGCONT)
		s.awaitDelivered(30 * time.Second)
		await(t, 10*time.Second, "everything is settled", func() bool { return s.unfinished() == 0 })
		r := s.history.Check()
		report(t, rate, r)
		lost := regexp.MustCompile(`leases were lost .*`).FindAllString(s.dispatchers[busy].output.String(), -1)
		t.Logf("%d jobs were in flight at the stop, %d came twice; %s", len(leases), len(r.Duplicated), strings.Join(lost, "; "))
		if r.Err() != nil {
			t.Fatal(r.Err())
		}
		held := make(map[string]bool, len(leases))
		for _, id := range leases {
			held[id] = true
		}
		for id, extra := range r.Duplicated {
			if !held[id] || extra > 1 {
				return fmt.Sprintf("job %s came %d times more; in flight at the stop: %v", id, extra, held[id])
			}
		}
		if len(lost) == 0 {
			return "no late outcome was refused"
		}
		return stall.crowded(r.MostIn, rate, spread, time.Second)
	})
}

// busiest is the dispatcher from which most jobs have departed.
func (s *system) busiest() (busiest int) {
	most := -1.
	for i := range s.opsOf {
		if n := s.metric(i, "tundish_departures_total"); n > most {
			busiest, most = i, n
		}
	}
	return busiest
}
