//go:build soak

package soak

import (
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// TestDispatcherPauses: one of two dispatchers stands still for twice its lease
// and goes on. What it held is delivered by the other, its permits are void,
// and its outcomes come too late to count.
func TestDispatcherPauses(t *testing.T) {
	const rate, jobs, lease, hold = 200, 1200, time.Second, 300 * time.Millisecond
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		server := redistest.Start(t)
		s := start(t, server, harness.Plan{Rate: rate, Dispatchers: 2, Lease: lease, Hold: hold})
		s.Post("pause", jobs)
		harness.Await(t, 10*time.Second, "deliveries go on", func() bool { return s.History.Check().Delivered >= 200 })
		busy := s.busiest() // the other one may stand by, and hold nothing
		s.Dispatchers[busy].Signal(t, syscall.SIGSTOP)
		stopped := time.Now()
		leases, err := server.Client().ZRange(t.Context(), "tundish:{"+harness.BucketName+"}:b:"+harness.BucketName+":leases", 0, -1).Result()
		if err != nil {
			t.Fatal(err)
		}
		harness.Await(t, 10*time.Second, "its leases ran out twice and were taken back", func() bool {
			return time.Since(stopped) >= 2*lease && strings.Contains(s.Dispatchers[1-busy].Output.String(), "swept: ")
		})
		s.Dispatchers[busy].Signal(t, syscall.SIGCONT)
		s.AwaitDelivered(30 * time.Second)
		harness.Await(t, 10*time.Second, "everything is settled", func() bool { return s.Unfinished() == 0 })
		r := s.History.Check()
		harness.Report(t, rate, r)
		lost := regexp.MustCompile(`leases were lost .*`).FindAllString(s.Dispatchers[busy].Output.String(), -1)
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
		return stall.Crowded(r.MostIn, rate, harness.Spread, time.Second)
	})
}

// busiest is the dispatcher from which most jobs have departed.
func (s *system) busiest() (busiest int) {
	most := -1.
	for i := range s.OpsOf {
		if n := s.Metric(i, "tundish_departures_total"); n > most {
			busiest, most = i, n
		}
	}
	return busiest
}
