package harness

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/tundish-io/tundish/shaper/fleet"
)

// Streamed sums up the events of a stream for the bucket.
type Streamed struct {
	mu        sync.Mutex
	seconds   int
	sum       fleet.Counts
	binned    int64
	processes int
	lost      []string
}

// Get returns the sums of the stream so far: counts, binned departures, the processes and seconds that it reported, and its faults.
func (h *Streamed) Get() (sum fleet.Counts, binned int64, processes, seconds int, lost string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sum, h.binned, h.processes, h.seconds, strings.Join(h.lost, ", ")
}

// ReadStream reads the stream of a dispatcher until it ends.
func ReadStream(t *testing.T, ops string) *Streamed {
	t.Helper()
	return ReadStreamAt(t, ops+"/v1/stream?bucket="+BucketName)
}

// ReadStreamAt reads the stream of an address, of the API or of the console, until it ends.
func ReadStreamAt(t *testing.T, address string) *Streamed {
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
	h := &Streamed{}
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
			c := second.Buckets[BucketName]
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
