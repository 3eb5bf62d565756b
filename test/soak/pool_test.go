//go:build soak

package soak

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
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
	s.T.Helper()
	lines := make([]string, count)
	for i := range lines {
		lines[i] = fmt.Sprintf(`{"id":"%s-%d","payload":{},"url":%q}`, bucket, i, s.Receiver.URL)
	}
	status, answer := s.PostBatch(bucket, lines)
	if status != http.StatusOK || !strings.Contains(string(answer), fmt.Sprintf(`"admitted":%d,`, count)) {
		s.T.Fatalf("batch for %s: %d %.200s", bucket, status, answer)
	}
	for i := range count {
		s.History.Admitted(fmt.Sprintf("%s-%d", bucket, i), time.Now())
	}
}

// TestPool: two buckets that have work share a pool by their weights, and together never
// leave faster than it; when one has none left, the other gets all of it.
func TestPool(t *testing.T) {
	const (
		rate, jobs    = 100, 600 // of each; the first is through after 8 s, the second after 12 s
		first, second = 3, 1
	)
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		a := &harness.ArrivalLog{}
		s := start(t, redistest.Start(t), harness.Plan{Rate: rate, Dispatchers: 2, Respond: a.Respond, Bucket: pooled(rate, first, second)})
		s.postInto(harness.BucketName, jobs)
		s.postInto(secondBucket, jobs)
		posted := time.Now()
		r := s.AwaitDelivered(30 * time.Second)
		harness.Report(t, rate, r)

		dry := a.Latest(harness.BucketName)
		firsts, seconds := a.Sorted(harness.BucketName), a.Sorted(secondBucket)
		of := func(times []time.Time) int { return len(between(times, posted.Add(settling), dry.Add(-settling))) }
		share := float64(of(firsts)) / float64(max(of(firsts)+of(seconds), 1))
		rest := between(seconds, dry.Add(settling), time.Now())
		alone, worst := paceOf(rest), harness.Ahead(a.All(), rate)
		t.Logf("of %d departures while both had work the first had %.1f %%; alone the second had %.1f/s over %d; ahead of the pool's rate in the worst window by %s, while the machine stalled for %s",
			of(firsts)+of(seconds), 100*share, alone, len(rest), worst, stall.SoFar())
		if fault := once(t, r); fault != "" {
			return fault
		}
		const due = float64(first) / (first + second)
		switch {
		case share < due-.05 || share > due+.05:
			return fmt.Sprintf("the first had %.1f %%, want %.0f %% ± 5", 100*share, 100*due)
		case len(rest) < jobs/2:
			return fmt.Sprintf("%d left when the first was through, want at least %d", len(rest), jobs/2)
		case worst > harness.Steady+stall.SoFar():
			return fmt.Sprintf("some window has more in it than the pool's rate explains: ahead by %s, want at most %s", worst, harness.Steady+stall.SoFar())
		}
		return cmp.Or(stall.Crowded(r.MostIn, rate, harness.Steady, time.Second, 100*time.Millisecond),
			stall.Slow(alone, rate, len(rest), .95), stall.Slow(r.Rate, rate, 2*jobs, .98))
	})
}
