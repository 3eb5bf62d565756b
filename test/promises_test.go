package test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
)

// The promises of the README, each once, with real processes. Random operations are in soak_test.go.
// What a refusal and a limit cost is in admission_test.go, a Redis that dies in crash_test.go, one
// that has a replica in sentinel_test.go.

// slotted is arrivals by id with the slots that Redis gave: what a receiver sees is held to these.
type slotted struct {
	arrivals *arrivalLog
	watched  *slotMonitor
}

// judge holds that each arrival has a slot of its own and that slots keep the rate in every window of any length.
// It returns the spread of lateness, which is how much more than that the receiver may see.
func (s slotted) judge(t *testing.T, rate int) (spread time.Duration) {
	t.Helper()
	if early := s.watched.sorted().early(rate); early >= time.Microsecond {
		t.Errorf("the slots of some window are %s ahead of the rate", early)
	}
	grants, _ := s.watched.all()
	given := map[string]slots{}
	for _, g := range grants {
		given[g.id] = append(given[g.id], g.slot)
	}
	var late []time.Duration
	for id, times := range s.arrivals.byID() {
		if len(times) > len(given[id]) {
			t.Errorf("job %s came %d times and had %d slots", id, len(times), len(given[id]))
			continue
		}
		slices.Sort(given[id])
		for _, at := range times { // some slots were those of a process that died
			n, _ := slices.BinarySearch(given[id], at.Add(soakHorizon).UnixMicro())
			late = append(late, at.Sub(time.UnixMicro(given[id][max(n-1, 0)])))
		}
	}
	if len(late) == 0 {
		t.Fatal("nothing arrived")
	}
	slices.Sort(late)
	t.Logf("%d slots; arrivals came %s to %s after theirs, half of them %s or less", len(grants), late[0], late[len(late)-1], late[len(late)/2])
	return late[len(late)-1] - late[0]
}

// TestDispatcherCrash is P1, P2, P6 and P7: kill -9 of one of two dispatchers loses no job; what it had in flight,
// and nothing else, may come twice, under the next number; all of it is claimed again within the lease and
// 5 s; and through all this the slots keep the rate.
func TestDispatcherCrash(t *testing.T) {
	const rate, jobs, lease, back = 200, 1200, 2 * time.Second, 5 * time.Second
	stall := watchStalls()
	t.Cleanup(func() { stall.stop() })
	server, seen := redistest.Start(t), &arrivalLog{}
	judge := slotted{seen, monitor(t, server)}
	// None has workers enough for the rate, so that both are at work.
	s := start(t, server, plan{rate: rate, dispatchers: 2, concurrency: 40, lease: lease, respond: func(w http.ResponseWriter, r *http.Request, id string, attempt int) {
		seen.respond(w, r, id, attempt)
		select {
		case <-time.After(200 * time.Millisecond):
		case <-r.Context().Done():
		}
	}})
	s.post("crash", jobs)
	await(t, 20*time.Second, "a third of the jobs have arrived", func() bool { return s.history.Check().Delivered >= jobs/3 })
	s.dispatchers[0].kill()
	leases, err := s.inspector.ZRange(t.Context(), s.key("leases"), 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	s.awaitDelivered(40 * time.Second)
	await(t, 20*time.Second, "everything is settled", func() bool { return s.unfinished() == 0 })

	r := s.history.Check()
	spread := judge.judge(t, rate)
	if err := r.Err(); err != nil || r.Repeated > 0 {
		t.Errorf("%v; %d deliveries had the number of an earlier one", err, r.Repeated)
	}
	if got, most := r.MostIn(time.Second), mostIn(time.Second, rate, spread); got > most {
		t.Errorf("%d arrived in a second, want at most %d", got, most)
	}
	stalled := stall.soFar()
	for id := range r.Duplicated {
		if !slices.Contains(leases, id) && stalled < lease/2 {
			t.Errorf("job %s came twice and was not in flight at the kill", id)
		}
	}
	latest, again := killed, 0
	grants, _ := judge.watched.all()
	for _, g := range grants {
		if at := time.UnixMicro(g.at); slices.Contains(leases, g.id) && at.After(killed) {
			again++
			if at.After(latest) {
				latest = at
			}
		}
	}
	t.Logf("%s; %d jobs were in flight at the kill, %d came twice, %d were claimed again, the last one %s after it; the machine was late by %s",
		r, len(leases), len(r.Duplicated), again, latest.Sub(killed).Round(time.Millisecond), stalled)
	if again == 0 {
		t.Error("the dispatcher that was killed had nothing in flight")
	}
	if took := latest.Sub(killed); took > lease+back+stall.cost() {
		t.Errorf("the last job of those in flight was claimed again %s after the kill, want %s", took, lease+back)
	}
}

// TestExactBound is P3: whoever enqueues as fast as he can through two producers, never is there one job more than
// bucket, group and flow may have, and none less.
func TestExactBound(t *testing.T) {
	t.Parallel()
	const callers, capacity, groupCapacity, flowCapacity = 16, 100, 60, 25
	server := redistest.Start(t)
	urls := producers(t, server.URL(), 2, fmt.Sprintf(`
[[buckets]]
name = "bounded"
rate = "1/h"
capacity = %d
[buckets.shed]
low = 100
normal = 100
high = 100
[buckets.flow]
key = "job"
capacity = %d
[buckets.group]
key = "job"
capacity = %d
[buckets.webhook]
url = "http://127.0.0.1:9/"
`, capacity, flowCapacity, groupCapacity))
	asker := newAsker(t, callers)
	// Group a fills one flow, then itself; group b what is left of the bucket.
	for _, step := range []struct {
		group  string
		flows  int
		expect int
		reason string
	}{{"a", 1, flowCapacity, "flow-full"}, {"a", 8, groupCapacity - flowCapacity, "group-full"}, {"b", 8, capacity - groupCapacity, "bucket-full"}} {
		var mu sync.Mutex
		answers := map[string]int{}
		var all sync.WaitGroup
		for caller := range callers {
			all.Go(func() {
				for i := range 8 {
					body := fmt.Sprintf(`{"payload":{},"group":%q,"flow":"f%d"}`, step.group, (caller+i)%step.flows)
					status, answer := asker.post(t.Context(), urls[caller%2]+"/v1/buckets/bounded/jobs", body)
					if status == http.StatusTooManyRequests && strings.Contains(answer, step.reason) {
						answer = step.reason
					} else {
						answer = ""
					}
					mu.Lock()
					answers[fmt.Sprint(status, answer)]++
					mu.Unlock()
				}
			})
		}
		all.Wait()
		t.Logf("group %s, %d flows: %v", step.group, step.flows, answers)
		if answers["202"] != step.expect {
			t.Errorf("group %s, %d flows: %d were let in, want %d: %v", step.group, step.flows, answers["202"], step.expect, answers)
		}
		if refused := answers["429 "+step.reason] + answers["429"+step.reason]; refused == 0 {
			t.Errorf("group %s, %d flows: nobody was refused as %s: %v", step.group, step.flows, step.reason, answers)
		}
	}
	if n := server.Client().HLen(t.Context(), "tundish:{bounded}:b:bounded:body").Val(); n != capacity {
		t.Errorf("the bucket holds %d jobs, want %d", n, capacity)
	}
}

// TestSameID is P4: an id is one job, whoever enqueues it at the same time, and after it is done; under the id of
// another one a job is refused.
func TestSameID(t *testing.T) {
	t.Parallel()
	const callers = 16
	s := start(t, redistest.Start(t), plan{rate: 200, dispatchers: 1})
	path, asker := s.api+"/v1/buckets/"+bucketName+"/jobs", newAsker(t, callers)
	const body, other = `{"id":"same-0","payload":{"n":1}}`, `{"id":"same-0","payload":{"n":2}}`
	var mu sync.Mutex
	fresh, again, otherwise := 0, 0, 0
	ask := func() {
		status, answer := asker.post(t.Context(), path, body)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case status == http.StatusAccepted && strings.Contains(answer, `"duplicate":true`):
			again++
		case status == http.StatusAccepted:
			fresh++
		default:
			otherwise++
		}
	}
	var all sync.WaitGroup
	for range callers {
		all.Go(ask)
	}
	all.Wait()
	s.history.Admitted("same-0", time.Now())
	s.awaitDelivered(20 * time.Second)
	await(t, 20*time.Second, "it is settled", func() bool { return s.unfinished() == 0 })
	ask()
	if fresh != 1 || again != callers || otherwise != 0 {
		t.Errorf("%d were told that the job is new, %d that it is there, %d otherwise; want 1, %d and 0", fresh, again, otherwise, callers)
	}
	if status, answer := asker.post(t.Context(), path, other); status != http.StatusUnprocessableEntity {
		t.Errorf("other content under the same id: %d %s, want 422", status, answer)
	}
	s.post("last", 1) // what came later has left, so that of this job nothing is to come
	if r := s.awaitDelivered(20 * time.Second); r.Extra > 0 || r.Delivered != 2 {
		t.Errorf("%s: want one delivery of each", r)
	}
}

// TestRefusalSpendsNothing is P5: what a full bucket refuses is not charged to a limit.
func TestRefusalSpendsNothing(t *testing.T) {
	t.Parallel()
	const limit, capacity, each = 10, 5, 20
	server := redistest.Start(t)
	tables := limitTable("spends", "fixed_window", fmt.Sprintf("%d/744h", limit)) + fmt.Sprintf(`[[buckets]]
name = "small"
rate = "1/h"
capacity = %d
limits = ["spends"]
[buckets.shed]
normal = 100
high = 100
low = 100
[buckets.webhook]
url = "http://127.0.0.1:9/"
`, capacity)
	url := producers(t, server.URL(), 1, tables)[0] + "/v1/buckets/small/jobs"
	asker := newAsker(t, 1)
	var let [3]int
	for round := range let {
		for i := range each {
			id := fmt.Sprintf("job-%d-%d", round, i)
			send := func() (int, string) { return asker.post(t.Context(), url, fmt.Sprintf(`{"id":%q,"payload":{}}`, id)) }
			status, answer := send()
			for status == http.StatusServiceUnavailable { // the machine stood still: the same id is the same job
				status, answer = send()
			}
			switch status {
			case http.StatusAccepted:
				let[round]++
			case http.StatusTooManyRequests:
			default:
				t.Fatalf("%d %s", status, answer)
			}
		}
		for i := range each { // room for the next round
			asker.cancel(t.Context(), fmt.Sprintf("%s/job-%d-%d", url, round, i))
		}
	}
	if want := [3]int{capacity, limit - capacity, 0}; let != want {
		t.Errorf("%v were let in with %d refused for want of room, want %v", let, each-capacity, want)
	}
}
