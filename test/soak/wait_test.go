//go:build soak

package soak

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// TestWaitForResults: what Prefer: wait adds to an answer, beside the time that the job waited for its slot and that of the receiver. The first
// call of each caller does not count: it opens a connection, all at the same time. They would be the slowest 1 in 75.
func TestWaitForResults(t *testing.T) {
	const rate, callers, calls, hold, bound = 100, 20, 1500, 20 * time.Millisecond, 10 * time.Millisecond
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		s := start(t, redistest.Start(t), harness.Plan{Rate: rate, Dispatchers: 2, Hold: hold, API: " "})
		var mu sync.Mutex
		var added, all []time.Duration
		var group sync.WaitGroup
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callers}}
		for caller := range callers {
			group.Go(func() {
				for n := range 1 + calls/callers {
					id := fmt.Sprintf("call-%d-%d", caller, n)
					total, beside, err := s.callAndWait(client, id)
					if err != nil {
						t.Error(err)
						return
					}
					if n == 0 {
						continue
					}
					mu.Lock()
					added, all = append(added, total-beside), append(all, total)
					mu.Unlock()
				}
			})
		}
		group.Wait()
		if t.Failed() {
			return ""
		}
		slices.Sort(added)
		slices.Sort(all)
		at := func(list []time.Duration, percent int) time.Duration {
			return list[len(list)*percent/100].Round(10 * time.Microsecond)
		}
		r := s.History.Check()
		harness.Report(t, rate, r)
		t.Logf("%d calls of %d callers: answered after %s (p50), %s (p99); of that neither queue nor receiver: %s (p50), %s (p90), %s (p99), %s at most",
			len(added), callers, at(all, 50), at(all, 99), at(added, 50), at(added, 90), at(added, 99), added[len(added)-1].Round(10*time.Microsecond))
		if r.Delivered != calls+callers || r.Extra > 0 {
			t.Errorf("%s", r)
		}
		if p99 := at(added, 99); p99 > bound+stall.SoFar() {
			return fmt.Sprintf("p99 is %s, want at most %s and what the machine was late by", p99, bound)
		}
		return ""
	})
}

// callAndWait enqueues a job and waits for its result. It returns how long that took, and for how long the job waited in the queue and the
// receiver worked.
func (s *system) callAndWait(client *http.Client, id string) (total, beside time.Duration, err error) {
	r, err := http.NewRequestWithContext(s.T.Context(), http.MethodPost, s.API+"/v1/buckets/"+harness.BucketName+"/jobs",
		strings.NewReader(fmt.Sprintf(`{"id":%q,"payload":{}}`, id)))
	if err != nil {
		return 0, 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Prefer", "wait=60")
	began := time.Now()
	response, err := client.Do(r)
	if err != nil {
		return 0, 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	total = time.Since(began)
	var result struct {
		Status     int       `json:"status"`
		EnqueuedAt time.Time `json:"enqueued_at"`
		DepartedAt time.Time `json:"departed_at"`
		Took       float64   `json:"took_seconds"`
	}
	if err == nil {
		err = json.Unmarshal(text, &result)
	}
	if err != nil || response.StatusCode != http.StatusOK || result.Status != http.StatusOK {
		return 0, 0, fmt.Errorf("%s: %d %s, %w", id, response.StatusCode, text, err)
	}
	s.History.Admitted(id, began)
	return total, result.DepartedAt.Sub(result.EnqueuedAt) + time.Duration(result.Took*float64(time.Second)), nil
}
