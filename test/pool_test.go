//go:build soak

package test

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
)

// settling is how long a share takes to settle, on each side of a change.
const settling = 500 * time.Millisecond

// secondBucket shares a pool with the bucket of all tests.
const secondBucket = "mails"

// pooled are the keys of the first bucket and all of the second, whose tables come behind
// it, in a pool of a rate, with more keys of the pool. The first one's jobs have to name their URL.
func pooled(rate, first, second int, keys ...string) string {
	return fmt.Sprintf(`pool = "vendor"
weight = %d
[buckets.webhook]
allow_networks = ["127.0.0.0/8"]
[[pools]]
name = "vendor"
rate = "%d/s"
%s
[[buckets]]
name = %q
rate = "%[2]d/s"
max_in_flight = 4000
pool = "vendor"
weight = %[5]d
`, first, rate, strings.Join(keys, "\n"), secondBucket, second)
}

// postInto enqueues jobs, whose ids begin with the bucket's name, into a bucket.
func (s *system) postInto(bucket string, count int) {
	s.t.Helper()
	lines := make([]string, count)
	for i := range lines {
		lines[i] = fmt.Sprintf(`{"id":"%s-%d","payload":{},"url":%q}`, bucket, i, s.receiver.URL)
	}
	status, answer := s.postBatch(bucket, lines)
	if status != http.StatusOK || !strings.Contains(string(answer), fmt.Sprintf(`"admitted":%d,`, count)) {
		s.t.Fatalf("batch for %s: %d %.200s", bucket, status, answer)
	}
	for i := range count {
		s.history.Admitted(fmt.Sprintf("%s-%d", bucket, i), time.Now())
	}
}

// TestPool: two buckets that have work share a pool by their weights, and together never
// leave faster than it; when one has none left, the other gets all of it.
func TestPool(t *testing.T) {
	const (
		rate, jobs    = 100, 600 // of each; the first is through after 8 s, the second after 12 s
		first, second = 3, 1
	)
	quietly(t, func(t *testing.T, stall *stallWatch) string {
		a := &arrivalLog{}
		s := start(t, redistest.Start(t), plan{rate: rate, dispatchers: 2, respond: a.respond, bucket: pooled(rate, first, second)})
		s.postInto(bucketName, jobs)
		s.postInto(secondBucket, jobs)
		posted := time.Now()
		r := s.awaitDelivered(30 * time.Second)
		report(t, rate, r)

		dry := a.latest(bucketName)
		firsts, seconds := a.sorted(bucketName), a.sorted(secondBucket)
		of := func(times []time.Time) int { return len(between(times, posted.Add(settling), dry.Add(-settling))) }
		share := float64(of(firsts)) / float64(max(of(firsts)+of(seconds), 1))
		rest := between(seconds, dry.Add(settling), time.Now())
		alone, worst := paceOf(rest), ahead(a.all(), rate)
		t.Logf("of %d departures while both had work the first had %.1f %%; alone the second had %.1f/s over %d; ahead of the pool's rate in the worst window by %s, while the machine stalled for %s",
			of(firsts)+of(seconds), 100*share, alone, len(rest), worst, stall.soFar())
		if fault := once(t, r); fault != "" {
			return fault
		}
		const due = float64(first) / (first + second)
		switch {
		case share < due-.05 || share > due+.05:
			return fmt.Sprintf("the first had %.1f %%, want %.0f %% ± 5", 100*share, 100*due)
		case len(rest) < jobs/2:
			return fmt.Sprintf("%d left when the first was through, want at least %d", len(rest), jobs/2)
		case worst > steady+stall.soFar():
			return fmt.Sprintf("some window has more in it than the pool's rate explains: ahead by %s, want at most %s", worst, steady+stall.soFar())
		}
		return cmp.Or(stall.crowded(r.MostIn, rate, steady, time.Second, 100*time.Millisecond),
			stall.slow(alone, rate, len(rest), .95), stall.slow(r.Rate, rate, 2*jobs, .98))
	})
}
