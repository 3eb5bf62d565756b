package test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper/fleet"
)

// streamed sums up what a stream tells of the bucket.
type streamed struct {
	mu        sync.Mutex
	seconds   int
	sum       fleet.Counts
	binned    int64
	processes int
	lost      []string
}

func (h *streamed) get() (sum fleet.Counts, binned int64, processes, seconds int, lost string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sum, h.binned, h.processes, h.seconds, strings.Join(h.lost, ", ")
}

// hear reads the stream of a dispatcher until it ends.
func hear(t *testing.T, ops string) *streamed {
	t.Helper()
	return hearAt(t, ops+"/v1/stream?bucket="+bucketName)
}

// hearAt does so at an address: that of the API, or that of the console.
func hearAt(t *testing.T, address string) *streamed {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	h := &streamed{}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(response.Body); lines.Scan(); {
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			var second fleet.Second
			if !ok || json.Unmarshal([]byte(data), &second) != nil {
				continue
			}
			h.mu.Lock()
			c := second.Buckets[bucketName]
			h.sum.Arrived, h.sum.Refused, h.sum.Departed, h.sum.Failed = h.sum.Arrived+c.Arrived, h.sum.Refused+c.Refused, h.sum.Departed+c.Departed, h.sum.Failed+c.Failed
			for _, b := range second.Bins {
				h.binned += b.Departed
			}
			h.seconds, h.processes, h.lost = h.seconds+1, second.Processes, append(h.lost, second.Lost...)
			h.mu.Unlock()
		}
	}()
	t.Cleanup(func() { <-ended })
	return h
}

// The sums of the stream are those of the receiver's log and of the answers of the producers. A process that is killed leaves the fleet, and the
// stream says so.
func TestFleet(t *testing.T) {
	onlyInCI(t)
	t.Parallel()
	quietly(t, func(t *testing.T, _ *stallWatch) string { return fleetIsTold(t) })
}

func fleetIsTold(t *testing.T) (fault string) {
	t.Helper()
	const jobs = 1000
	s := start(t, redistest.Start(t), plan{rate: 200, dispatchers: 3, lease: 3 * time.Second})
	text, err := os.ReadFile(s.config)
	if err != nil {
		t.Fatal(err)
	}
	other := "http://" + redistest.FreeAddr(t)
	second := filepath.Join(t.TempDir(), "producer.toml")
	changed := strings.Replace(string(text), strings.TrimPrefix(s.api, "http://"), strings.TrimPrefix(other, "http://"), 1)
	if err := os.WriteFile(second, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, other, "producer", "serve", "--config", second)

	h := hear(t, s.opsOf[0])
	await(t, 20*time.Second, "all processes tell each second", func() bool {
		_, _, processes, seconds, _ := h.get()
		return processes == 5 && seconds >= 9
	})
	s.post("first", jobs)
	s.api = other
	s.post("second", jobs)
	r := s.awaitDelivered(30 * time.Second)
	report(t, 200, r)
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	want := fleet.Counts{Arrived: 2 * jobs, Departed: 2 * jobs}
	await(t, 10*time.Second, "the stream tells all of it", func() bool {
		sum, _, _, _, _ := h.get()
		return sum == want
	})
	// A process tells the bins of its last 2.5 seconds. On a machine that is too busy for its beats, some are told by none.
	if _, binned, _, _, _ := h.get(); binned != 2*jobs {
		return fmt.Sprintf("%d departures are in bins of 100 ms, of %d", binned, 2*jobs)
	}
	s.dispatchers[2].kill()
	await(t, 20*time.Second, "the killed process is told of", func() bool {
		_, _, processes, _, lost := h.get()
		return processes == 4 && strings.HasPrefix(lost, "dispatcher on ")
	})
	s.dispatchers[1].stop(t)
	await(t, 10*time.Second, "a stopped process is not there any more", func() bool {
		_, _, processes, _, _ := h.get()
		return processes == 3
	})
	if sum, _, _, _, lost := h.get(); sum != want || strings.Contains(lost, ",") {
		t.Errorf("in the end the sums are %+v, lost is %q", sum, lost)
	}
	s.dispatchers[0].stop(t) // with a stream open
	return ""
}
