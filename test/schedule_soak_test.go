//go:build soak

package test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// TestSchedulesFireOnceInACluster is TestSchedulesFireOnce on a Cluster.
func TestSchedulesFireOnceInACluster(t *testing.T) {
	c := redistest.StartCluster(t, "--cluster-node-timeout", "30000")
	fireAndKill(t, c.Nodes[0], c.Client(t), c.URL(), soakFires)
}

// TestAMillionDelayed: a million jobs that are due tomorrow, in a plain bucket and in one of 1,000 flows. How fast they get in, what each
// takes in Redis, which keeps them in an append-only file, and what a dispatcher asks of Redis while none is due.
func TestAMillionDelayed(t *testing.T) {
	for _, c := range []struct {
		name   string
		flows  int
		bucket string
	}{{"plain", 0, ""}, {"flows", 1000, "[buckets.flow]\nkey = \"job\"\nmax_flows = 2000\n"}} {
		t.Run(c.name, func(t *testing.T) {
			const jobs, batch, callers, bytesAtMost, scriptsAtMost = 1_000_000, 1000, 4, 600, 20
			server := redistest.Start(t, "--appendonly", "yes")
			s := start(t, server, harness.Plan{Rate: 200, Dispatchers: 1, Bucket: fmt.Sprintf("scheduled_capacity = %d\n", 2*jobs) + c.bucket})
			memory := func() (n int64) { return infoNumber(t, s, "memory", "used_memory:") }
			warm := ""
			if c.flows > 0 {
				warm = `,"flow":"f0"`
			}
			s.PostAs("warm", 10, warm) // so that what there is once is there
			s.AwaitDelivered(20 * time.Second)
			before, began := memory(), time.Now()
			var group sync.WaitGroup
			var next atomic.Int64
			for range callers {
				group.Go(func() {
					for first := next.Add(batch) - batch; first < jobs; first = next.Add(batch) - batch {
						var body strings.Builder
						for i := first; i < first+batch; i++ {
							flow := ""
							if c.flows > 0 {
								flow = fmt.Sprintf(`,"flow":"f%d"`, i%int64(c.flows))
							}
							fmt.Fprintf(&body, `{"id":"later-%d","delay":"24h","payload":{"order":%d}%s}`+"\n", i, i, flow)
						}
						status, answer := s.Request(http.MethodPost, "/v1/buckets/"+harness.BucketName+"/jobs/batch", "application/x-ndjson", strings.NewReader(body.String()))
						if status != http.StatusOK || !strings.Contains(string(answer), fmt.Sprintf(`"admitted":%d,`, batch)) {
							t.Errorf("a batch is answered %d %.300s", status, answer)
							return
						}
					}
				})
			}
			group.Wait()
			took, each := time.Since(began), float64(memory()-before)/jobs
			if t.Failed() {
				return
			}
			const watched = 20 * time.Second
			scripts := infoNumber(t, s, "commandstats", "cmdstat_fcall:calls=")
			all := infoNumber(t, s, "stats", "total_commands_processed:")
			<-time.After(watched)
			scripts = infoNumber(t, s, "commandstats", "cmdstat_fcall:calls=") - scripts
			all = infoNumber(t, s, "stats", "total_commands_processed:") - all
			perSecond := float64(scripts) / watched.Seconds()
			t.Logf("%s: %.0f jobs/s enqueued over HTTP by %d callers, %.0f bytes a job; while none is due %.1f scripts a second, which are %.0f commands with those within them",
				c.name, jobs/took.Seconds(), callers, each, perSecond, float64(all)/watched.Seconds())
			if each > bytesAtMost {
				t.Errorf("a job takes %.0f bytes, want at most %d", each, bytesAtMost)
			}
			if perSecond > scriptsAtMost {
				t.Errorf("an idle dispatcher runs %.1f scripts a second, want at most %d", perSecond, scriptsAtMost)
			}
			if n := s.Inspector.HGet(t.Context(), s.Key("count"), "scheduled").Val(); n != fmt.Sprint(jobs) {
				t.Errorf("%s jobs are scheduled, want %d", n, jobs)
			}
		})
	}
}

// infoNumber is a number that INFO tells behind a text.
func infoNumber(t *testing.T, s *system, section, text string) (n int64) {
	t.Helper()
	info, err := s.Inspector.Info(t.Context(), section).Result()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(info, text)
	if !found {
		t.Fatalf("INFO %s has no %s", section, text)
	}
	if _, err := fmt.Sscan(strings.FieldsFunc(rest, func(r rune) bool { return r < '0' || r > '9' })[0], &n); err != nil {
		t.Fatal(err)
	}
	return n
}
