//go:build soak

package soak

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// TestFailingReceiver: a downstream that answers 500, hangs and resets gets
// every job again, at the pace, under the number of the attempt.
func TestFailingReceiver(t *testing.T) {
	const rate, jobs, failures = 200, 400, 3
	reasons := map[string]string{"hang-0": "timeout", "reset-0": "connection", "refuse-0": "http_500"}
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		s := start(t, redistest.Start(t), harness.Plan{Rate: rate, Dispatchers: 2, Timeout: 900 * time.Millisecond,
			Respond: func(w http.ResponseWriter, r *http.Request, id string, attempt int) {
				_, _ = io.Copy(io.Discard, r.Body) // so that the server notices when the sender gives up
				var n int
				_, _ = fmt.Sscanf(id, "job-%d", &n) // others have no number
				switch {
				case id == "hang-0" && attempt <= failures:
					<-r.Context().Done()
				case id == "reset-0" && attempt <= failures:
					panic(http.ErrAbortHandler)
				case id == "refuse-0" && attempt <= failures, n%3 == 1 && attempt == 1:
					http.Error(w, "not now", http.StatusInternalServerError)
				}
			}})
		for id := range reasons {
			s.Post(strings.TrimSuffix(id, "-0"), 1)
		}
		s.Post("job", jobs)
		seen := map[string]bool{}
		told := func() bool { return seen["hang-0"] && seen["reset-0"] && seen["refuse-0"] }
		harness.Await(t, 20*time.Second, "each failure is told, or over", func() bool {
			for id, reason := range reasons {
				_, answer := s.Request(http.MethodGet, "/v1/buckets/"+harness.BucketName+"/jobs/"+id, "", nil)
				seen[id] = seen[id] || strings.Contains(string(answer), `"`+reason+`"`)
			}
			return told() || s.Unfinished() == 0
		})
		harness.Await(t, 30*time.Second, "everything is settled", func() bool { return s.Unfinished() == 0 })
		r := s.History.Check()
		harness.Report(t, rate, r)
		again := 3 * failures
		for n := range jobs {
			if n%3 == 1 {
				again++
			}
		}
		t.Logf("%d retries, want %d; %d attempts came under a number that was there", r.Extra, again, r.Repeated)
		switch {
		case r.Err() != nil:
			t.Fatal(r.Err())
		case !told():
			return fmt.Sprintf("not each failure was told: %v", seen)
		case r.Extra != again || r.Repeated > 0:
			return fmt.Sprintf("%d retries, want %d, %d under the same number", r.Extra, again, r.Repeated)
		}
		return stall.Crowded(r.MostIn, rate, harness.Spread, time.Second)
	})
}
