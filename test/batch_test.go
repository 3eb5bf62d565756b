package test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// batchReceiver takes batches. It answers each job of a request by itself, after a while.
type batchReceiver struct {
	hold  time.Duration
	fails func(id string) bool // whether the first attempt at a job fails

	mu        sync.Mutex
	now, most int                    // requests at a time
	nowOf     map[string]int         // the same of each flow
	mostOf    int                    // of any flow
	times     map[string][]time.Time // of requests, by flow
	sizes     []int
	came      map[string]int // job -> how often it came
	done      map[string]int // job -> how often a 200 was answered
	failed    map[string]bool
	broken    int // jobs in requests whose dispatcher was gone before the answer
	faults    []string
}

func newBatchReceiver(hold time.Duration, fails func(id string) bool) *batchReceiver {
	return &batchReceiver{hold: hold, fails: fails, nowOf: map[string]int{}, times: map[string][]time.Time{}, came: map[string]int{}, done: map[string]int{}, failed: map[string]bool{}}
}

type itemStatus struct {
	ID     string `json:"id"`
	Status int    `json:"status"`
}

func flowOfJob(id string) string {
	flow, _, _ := strings.Cut(id, "-")
	return flow
}

func (b *batchReceiver) respond(w http.ResponseWriter, r *http.Request, _ string, _ int) {
	at := time.Now()
	var items []harness.SentItem
	err := json.NewDecoder(r.Body).Decode(&items)
	results, flow := b.take(at, items, err)
	timer := time.NewTimer(b.hold)
	defer timer.Stop()
	broken := false
	select {
	case <-timer.C:
	case <-r.Context().Done():
		broken = true
	}
	b.mu.Lock()
	b.now--
	b.nowOf[flow]--
	for _, result := range results {
		switch {
		case broken:
			b.broken++
		case result.Status == http.StatusOK:
			b.done[result.ID]++
		}
	}
	b.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"results": results})
}

// take notes a request, and decides what to answer to each of its jobs.
func (b *batchReceiver) take(at time.Time, items []harness.SentItem, err error) (results []itemStatus, flow string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil || len(items) == 0 {
		b.faults = append(b.faults, fmt.Sprintf("a request has %d items: %v", len(items), err))
		return nil, ""
	}
	flow = flowOfJob(items[0].ID)
	b.now++
	b.nowOf[flow]++
	b.most, b.mostOf = max(b.most, b.now), max(b.mostOf, b.nowOf[flow])
	b.times[flow], b.sizes = append(b.times[flow], at), append(b.sizes, len(items))
	for _, item := range items {
		status := http.StatusOK
		if b.came[item.ID]++; b.fails(item.ID) && !b.failed[item.ID] {
			b.failed[item.ID], status = true, http.StatusInternalServerError
		}
		if flowOfJob(item.ID) != flow || item.Attempt < 1 || string(item.Data) != `{"of":"`+item.ID+`"}` {
			b.faults = append(b.faults, fmt.Sprintf("%s in a batch of flow %s: %+v", item.ID, flow, item))
		}
		results = append(results, itemStatus{item.ID, status})
	}
	return results, flow
}

// batchRun is a run of a bucket with batches.
type batchRun struct {
	flows, each, size int
	rate, bound       int // requests a second, and in flight
	quota             int // requests in 5 s
	kills             int
	inPool            bool // quota and bound are of the pool of the bucket, else of the bucket
}

func (p batchRun) plan(b *batchReceiver) harness.Plan {
	bounds, inFlight, pool := fmt.Sprintf("quotas = [\"%d/5s\"]\n", p.quota), p.bound, ""
	if p.inPool {
		pool = fmt.Sprintf("[[pools]]\nname = \"vendor\"\nrate = \"%d/s\"\nmax_in_flight = %d\n%s", 2*p.rate, p.bound, bounds)
		bounds, inFlight = "pool = \"vendor\"\n", 0
	}
	return harness.Plan{
		Rate: p.rate, Dispatchers: 3, MaxInFlight: inFlight, Lease: 3 * time.Second, Respond: b.respond, More: pool,
		Bucket: bounds + fmt.Sprintf(`[buckets.flow]
key = "job"
rate = "1/s"
max_in_flight = 1
[buckets.batch]
max_size = %d
max_wait = "2s"`, p.size),
	}
}

// run enqueues the jobs and waits until nothing is left of them. It returns what went wrong with times.
func (p batchRun) run(t *testing.T, stall *harness.StallWatch) (fault string) {
	t.Helper()
	b := newBatchReceiver(250*time.Millisecond, func(id string) bool { return strings.HasSuffix(id, "-7") })
	s := start(t, redistest.Start(t), p.plan(b))
	var lines []string
	for i := range p.each {
		for flow := range p.flows {
			id := fmt.Sprintf("f%d-%d", flow, i)
			lines = append(lines, fmt.Sprintf(`{"id":%q,"flow":"f%d","payload":{"of":%q}}`, id, flow, id))
		}
	}
	s.PostLines(lines)
	jobs := len(lines)
	delivered := func(n int) func() bool {
		return func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return len(b.done) >= n
		}
	}
	for kill := range p.kills {
		harness.Await(t, 120*time.Second, fmt.Sprintf("jobs are done before kill %d", kill+1), delivered(jobs*(kill+1)/(p.kills+2)))
		s.Dispatchers[kill%3].Kill()
		s.Dispatchers[kill%3] = s.Restart[kill%3]()
	}
	key := s.Key
	if p.inPool {
		key = func(name string) string { return "tundish:{vendor}:b:" + harness.BucketName + ":" + name }
	}
	harness.Await(t, 300*time.Second, "everything is settled", func() bool {
		left, err := s.Inspector.HLen(t.Context(), key("body")).Result()
		return err == nil && left == 0 && delivered(jobs)()
	})

	b.mu.Lock()
	defer b.mu.Unlock()
	r := s.History.Check()
	requests, extra, alone := len(b.sizes), 0, 0
	for id, n := range b.came {
		if extra += n - 1; b.failed[id] {
			extra--
		}
	}
	for _, size := range b.sizes {
		if size == 1 {
			alone++
		}
	}
	slices.Sort(b.sizes)
	t.Logf("%d jobs of %d flows in %d requests: %.1f jobs a request, median %d, most %d, %d with one job; %.1f requests/s; at most %d requests at a time, %d of a flow; most in 1s %d, in 5s %d; %d jobs failed once, %d were in requests that kills broke off, %d came again without an answer that said so",
		jobs, p.flows, requests, float64(jobs+len(b.failed)+extra)/float64(requests), b.sizes[requests/2], b.sizes[requests-1], alone, r.Rate, b.most, b.mostOf, r.MostIn(time.Second), r.MostIn(5*time.Second), len(b.failed), b.broken, extra)
	for _, line := range lines {
		var job struct{ ID string }
		if err := json.Unmarshal([]byte(line), &job); err != nil || b.done[job.ID] == 0 {
			t.Errorf("job %s was not done, %v", job.ID, err)
		}
	}
	if len(b.faults) > 0 || len(b.failed) != p.flows || b.sizes[requests-1] > p.size {
		t.Errorf("%d faults, such as %v; %d jobs failed; the largest batch has %d", len(b.faults), b.faults[:min(3, len(b.faults))], len(b.failed), b.sizes[requests-1])
	}
	if b.most > p.bound || b.mostOf > 1 {
		t.Errorf("%d requests at a time, %d of a flow: want at most %d and 1", b.most, b.mostOf, p.bound)
	}
	if most := p.kills * p.bound * p.size; extra > most || p.kills == 0 && extra > 0 {
		t.Errorf("%d jobs came again without reason, at most %d can have been in flight", extra, most)
	}
	if left := s.Inspector.Exists(t.Context(), key("followers"), key("leases"), key("dead")).Val(); left > 0 {
		t.Errorf("%d of followers, leases and dead letters are left", left)
	}
	if t.Failed() {
		return ""
	}
	if p.kills == 0 && float64(jobs)/float64(requests-len(b.failed)) < .9*float64(p.size) {
		return fmt.Sprintf("%d requests, of which %d may be of jobs that failed: batches of %d are not full", requests, len(b.failed), p.size)
	}
	if got := r.MostIn(5 * time.Second); got > p.quota+int(stall.SoFar().Seconds()*float64(p.rate)) {
		return fmt.Sprintf("%d requests in 5s, the quota is %d", got, p.quota)
	}
	for flow, times := range b.times {
		if fault := stall.Crowded(func(window time.Duration) int { return harness.MostOf(times, window) }, 1, harness.Spread, 900*time.Millisecond, 5*time.Second); fault != "" {
			return "flow " + flow + ": " + fault
		}
	}
	return stall.Crowded(r.MostIn, p.rate, harness.Spread, 100*time.Millisecond, time.Second, 5*time.Second)
}

func batchesOf(kills int) batchRun {
	if redistest.Soak {
		return batchRun{flows: 100, each: 100, size: 50, rate: 20, bound: 6, quota: 90, kills: kills, inPool: kills > 0}
	}
	return batchRun{flows: 20, each: 20, size: 10, rate: 20, bound: 6, quota: 90, kills: kills, inPool: kills > 0}
}

// TestBatches: jobs of many flows leave in batches. Every bound counts requests, in every window. Jobs that failed alone are sent again
// alone, and every other job once.
func TestBatches(t *testing.T) {
	t.Parallel()
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string { return batchesOf(0).run(t, stall) })
}

// TestBatchesWhileProcessesDie: kill -9 of dispatchers with batches in flight, in a bucket of a pool. No job is lost, and no bound of the
// bucket, its flows and the pool is passed.
func TestBatchesWhileProcessesDie(t *testing.T) {
	t.Parallel()
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string { return batchesOf(3).run(t, stall) })
}
