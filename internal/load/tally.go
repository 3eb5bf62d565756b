package load

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// longest is the longest latency that is recorded; three digits are kept.
const longest = time.Hour

// tally counts results and latencies. It is safe for concurrent use.
type tally struct {
	mu         sync.Mutex
	start      time.Time
	sent       int
	admitted   int
	duplicates int
	refused    map[string]int
	failed     map[string]int
	details    map[string]string // by the same reasons: the detail of the first response
	answered   bool              // the server has responded at least once
	latency    *hdrhistogram.Histogram
}

func newTally(start time.Time) *tally {
	return &tally{
		start: start, refused: make(map[string]int), failed: make(map[string]int), details: make(map[string]string),
		latency: hdrhistogram.New(1, longest.Microseconds(), 3),
	}
}

// sending counts jobs that go out.
func (t *tally) sending(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sent += n
}

// count counts the final result of a job. If a repeated job is there already because the first request was accepted, it is no duplicate.
func (t *tally) count(a *answer, again bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answered = t.answered || a.failure == ""
	switch a.Status {
	case http.StatusAccepted:
		t.admitted++
		if a.Duplicate && !again {
			t.duplicates++
		}
	case http.StatusTooManyRequests:
		t.refused[a.reason()]++
	default:
		t.failed[a.reason()]++
	}
	if text := a.detail(); a.Status != http.StatusAccepted && text != "" && t.details[a.reason()] == "" {
		t.details[a.reason()] = text
	}
}

// recordLatency records the latency of a request.
func (t *tally) recordLatency(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	// Cannot fail: the value is in range.
	_ = t.latency.RecordValue(min(max(d, time.Microsecond), longest).Microseconds())
}

// unanswered returns a failure if the server has never responded, otherwise "".
func (t *tally) unanswered() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.answered || len(t.failed) == 0 {
		return ""
	}
	return slices.Sorted(maps.Keys(t.failed))[0]
}

// line returns the progress in one line.
func (t *tally) line(jobs int, now time.Time) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return fmt.Sprintf("%.1fs  sent %d of %d  admitted %d  refused %d  failed %d  p99 %s",
		now.Sub(t.start).Seconds(), t.sent, jobs, t.admitted, sum(t.refused), sum(t.failed),
		rounded(time.Duration(t.latency.ValueAtQuantile(99))*time.Microsecond))
}

func (t *tally) report(now time.Time) Report {
	t.mu.Lock()
	defer t.mu.Unlock()
	elapsed := now.Sub(t.start).Seconds()
	at := func(quantile float64) Millis { return millis(t.latency.ValueAtQuantile(quantile)) }
	return Report{
		Sent: t.sent, Admitted: t.admitted, Duplicates: t.duplicates,
		Refused: maps.Clone(t.refused), Failed: maps.Clone(t.failed), Details: maps.Clone(t.details),
		Elapsed: elapsed, Rate: float64(t.sent) / max(elapsed, 1e-9),
		Latency: Latency{P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Max: millis(t.latency.Max())},
	}
}

func millis(microseconds int64) Millis { return Millis(float64(microseconds) / 1000) }
