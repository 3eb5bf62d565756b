package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper/fleet"
	"github.com/tundish-io/tundish/test/harness"
)

// The sums of the stream are those of the receiver's log and of the answers of the producers. A process that is killed leaves the fleet, and the
// stream says so.
func TestFleet(t *testing.T) {
	harness.OnlyInCI(t)
	t.Parallel()
	harness.Quietly(t, func(t *testing.T, _ *harness.StallWatch) string { return fleetIsTold(t) })
}

func fleetIsTold(t *testing.T) (fault string) {
	t.Helper()
	const jobs = 1000
	s := start(t, redistest.Start(t), harness.Plan{Rate: 200, Dispatchers: 3, Lease: 3 * time.Second})
	text, err := os.ReadFile(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	other := "http://" + redistest.FreeAddr(t)
	second := filepath.Join(t.TempDir(), "producer.toml")
	changed := strings.Replace(string(text), strings.TrimPrefix(s.API, "http://"), strings.TrimPrefix(other, "http://"), 1)
	if err := os.WriteFile(second, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	harness.Run(t, other, "producer", "serve", "--config", second)

	h := harness.ReadStream(t, s.OpsOf[0])
	harness.Await(t, 20*time.Second, "all processes tell each second", func() bool {
		_, _, processes, seconds, _ := h.Get()
		return processes == 5 && seconds >= 9
	})
	s.Post("first", jobs)
	s.API = other
	s.Post("second", jobs)
	r := s.AwaitDelivered(30 * time.Second)
	harness.Report(t, 200, r)
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	want := fleet.Counts{Arrived: 2 * jobs, Departed: 2 * jobs}
	harness.Await(t, 10*time.Second, "the stream tells all of it", func() bool {
		sum, _, _, _, _ := h.Get()
		return sum == want
	})
	// A process tells the bins of its last 2.5 seconds. On a machine that is too busy for its heartbeats, some are told by none.
	if _, binned, _, _, _ := h.Get(); binned != 2*jobs {
		return fmt.Sprintf("%d departures are in bins of 100 ms, of %d", binned, 2*jobs)
	}
	s.Dispatchers[2].Kill()
	harness.Await(t, 20*time.Second, "the killed process is told of", func() bool {
		_, _, processes, _, lost := h.Get()
		return processes == 4 && strings.HasPrefix(lost, "dispatcher on ")
	})
	s.Dispatchers[1].Stop(t)
	harness.Await(t, 10*time.Second, "a stopped process is not there any more", func() bool {
		_, _, processes, _, _ := h.Get()
		return processes == 3
	})
	if sum, _, _, _, lost := h.Get(); sum != want || strings.Contains(lost, ",") {
		t.Errorf("in the end the sums are %+v, lost is %q", sum, lost)
	}
	s.Dispatchers[0].Stop(t) // with a stream open
	return ""
}
