//go:build soak

package soak

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// TestFlowsWhenADispatcherDies: kill -9 of one of two dispatchers loses nothing, doubles only
// what was in flight, makes no burst in any flow, and no flow stays held back.
func TestFlowsWhenADispatcherDies(t *testing.T) {
	const rate, flowRate, bound, each, lease = 200, 20, 5, 100, 3 * time.Second
	flows := flowNames(8)
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		var a harness.ArrivalLog
		b := &busyFlows{hold: 200 * time.Millisecond}
		s := start(t, redistest.Start(t), harness.Plan{
			Rate: rate, Dispatchers: 2, Lease: lease,
			Bucket: flowTable(fmt.Sprintf(`rate = "%d/s"`, flowRate), fmt.Sprintf("max_in_flight = %d", bound)),
			Respond: func(w http.ResponseWriter, r *http.Request, id string, attempt int) {
				a.Respond(w, r, id, attempt)
				b.respond(w, r, id, attempt)
			},
		})
		s.postFlows(flows, each)
		harness.Await(t, 20*time.Second, "half of the jobs have arrived", func() bool {
			return s.History.Check().Delivered >= len(flows)*each/2
		})
		s.Dispatchers[0].Kill()
		leases, err := s.Inspector.ZRange(t.Context(), s.Key("leases"), 0, -1).Result()
		if err != nil {
			t.Fatal(err)
		}
		killed := time.Now()
		inFlight := make(map[string]bool, len(leases))
		for _, id := range leases {
			inFlight[id] = true
		}
		s.AwaitDelivered(40 * time.Second)
		arrived := time.Now()
		s.awaitIdleFlows(20 * time.Second)
		idle := time.Since(arrived)
		r := s.History.Check()
		harness.Report(t, rate, r)
		t.Logf("%d jobs were in flight at the kill, %d came twice, all had arrived %s after it, the flows were idle %s later; most of a flow in 1s %d",
			len(leases), len(r.Duplicated), arrived.Sub(killed).Round(time.Millisecond), idle.Round(time.Millisecond),
			a.MostOfEach(flows, time.Second))
		if err := r.Err(); err != nil {
			t.Fatal(err)
		}
		for _, flow := range flows {
			if n := b.of(flow).highest(); n > bound {
				t.Fatalf("%d of flow %s at a time", n, flow)
			}
		}
		for id, extra := range r.Duplicated {
			if !inFlight[id] || extra > 1 {
				return fmt.Sprintf("job %s came %d times more; in flight at the kill: %v", id, extra, inFlight[id])
			}
		}
		// Leases are back within 5 s of their end, and with them the places of their flows.
		if want := lease + 5*time.Second + stall.Cost(); idle > want {
			return fmt.Sprintf("the flows were idle %s after all was delivered, want %s", idle, want)
		}
		if fault := a.Crowded(stall, flows, flowRate, harness.Steady, time.Second, 200*time.Millisecond); fault != "" {
			return fault
		}
		return stall.Crowded(r.MostIn, rate, harness.Steady, time.Second)
	})
}

// TestFlowsWhenTheClockSteps: the clock of Redis is set under load, back by seconds and
// forwards by an hour. Every flow stays even and goes on within a second.
func TestFlowsWhenTheClockSteps(t *testing.T) {
	const rate, flowRate, each, hold = 200, 20, 100, 300 * time.Millisecond
	flows := flowNames(9)
	steps := []struct {
		delivered int // when it is made
		offset    time.Duration
	}{{150, -5 * time.Second}, {350, time.Hour}, {600, 0}}
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		server, clock := harness.StartMovable(t)
		var a harness.ArrivalLog
		s := start(t, server, harness.Plan{
			Rate: rate, Dispatchers: 2, Lease: 3 * time.Second, Bucket: flowTable(fmt.Sprintf(`rate = "%d/s"`, flowRate)),
			Respond: func(w http.ResponseWriter, r *http.Request, id string, attempt int) {
				a.Respond(w, r, id, attempt)
				select {
				case <-time.After(hold):
				case <-r.Context().Done():
				}
			},
		})
		s.postFlows(flows, each)
		for _, step := range steps {
			harness.Await(t, 20*time.Second, fmt.Sprint(step.delivered, " jobs have arrived"), func() bool {
				return s.History.Check().Delivered >= step.delivered
			})
			clock.Set(step.offset)
		}
		s.AwaitDelivered(30 * time.Second)
		s.awaitIdleFlows(10 * time.Second)
		r := s.History.Check()
		harness.Report(t, rate, r)
		var pause time.Duration
		for _, flow := range flows {
			times := a.Sorted(flow)
			for i := 1; i < len(times); i++ {
				pause = max(pause, times[i].Sub(times[i-1]))
			}
		}
		t.Logf("the longest pause of a flow: %s; most of a flow in 1s %d", pause.Round(time.Millisecond), a.MostOfEach(flows, time.Second))
		switch fault := once(t, r); {
		case fault != "":
			return fault
		case pause > time.Second+stall.SoFar():
			return fmt.Sprintf("nothing of a flow came for %s", pause)
		}
		if fault := a.Crowded(stall, flows, flowRate, harness.Spread, time.Second); fault != "" {
			return fault
		}
		return stall.Crowded(r.MostIn, rate, harness.Spread, time.Second)
	})
}

// TestQuotasWhenTheClockStepsBack: the clock of Redis is an hour ahead, and set right where
// quotas are used up. Nothing waits for that hour.
func TestQuotasWhenTheClockStepsBack(t *testing.T) {
	const rate, quota, flowQuota, each, window = 50, 20, 10, 20, 2 * time.Second
	flows := flowNames(3)
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		server, clock := harness.StartMovable(t)
		clock.Set(time.Hour)
		var a harness.ArrivalLog
		s := start(t, server, harness.Plan{
			Rate: rate, Dispatchers: 2, Respond: a.Respond,
			Bucket: fmt.Sprintf("quotas = [\"%d/2s\"]\n", quota) + flowTable(fmt.Sprintf(`quotas = ["%d/2s"]`, flowQuota)),
		})
		s.postFlows(flows, each)
		harness.Await(t, 10*time.Second, "the quota is used up", func() bool { return s.History.Check().Delivered >= quota })
		clock.Set(0)
		s.AwaitDelivered(30 * time.Second)
		s.awaitIdleFlows(10 * time.Second)
		r := s.History.Check()
		harness.Report(t, rate, r)
		all := a.All()
		took := all[len(all)-1].Sub(all[0])
		t.Logf("%d jobs took %s at %d in %s; most of them in that %d, of a flow %d", len(all), took.Round(time.Millisecond), quota, window,
			harness.MostOf(all, window-harness.Steady), a.MostOfEach(flows, window-harness.Steady))
		within := window - harness.Steady - stall.SoFar()
		switch fault := once(t, r); {
		case fault != "":
			return fault
		case harness.MostOf(all, within) > quota:
			return fmt.Sprintf("%d in %s, want %d in %s", harness.MostOf(all, within), within, quota, window)
		case a.MostOfEach(flows, within) > flowQuota:
			return fmt.Sprintf("%d of a flow in %s, want %d in %s", a.MostOfEach(flows, within), within, flowQuota, window)
		}
		// Two windows after the first; the step costs one of the bucket and one of the flows.
		if want := 4*window + time.Second + stall.Cost(); took > want {
			return fmt.Sprintf("%d jobs took %s, want %s", len(all), took, want)
		}
		return ""
	})
}

// TestFlowsOutOfMemory: at maxmemory the flows of a bucket drain, with all that is kept of
// them, and obey an operator.
func TestFlowsOutOfMemory(t *testing.T) {
	t.Parallel()
	const each = 40
	flows := flowNames(10)
	server := redistest.Start(t, "--maxmemory-policy", "noeviction")
	s := start(t, server, harness.Plan{
		Rate: 200, Dispatchers: 1,
		Bucket: "quotas = [\"100000/h\"]\n" + flowTable(`rate = "40/s"`, "max_in_flight = 3", "capacity = 1000", `quotas = ["1000/h"]`),
	})
	s.postFlows(flows, each)
	client := server.Client()
	if err := client.ConfigSet(t.Context(), "maxmemory", "1mb").Err(); err != nil {
		t.Fatal(err)
	}
	status, answer := s.Request(http.MethodPost, "/v1/buckets/"+harness.BucketName+"/jobs", "application/json",
		strings.NewReader(`{"id":"refused","payload":{},"flow":"f0"}`))
	if status != http.StatusServiceUnavailable {
		t.Fatalf("enqueue at maxmemory: %d %s, want 503", status, answer)
	}
	s.operateFlow("pause", "f0")
	harness.Await(t, 20*time.Second, "the others drain", func() bool { return s.History.Check().Delivered >= (len(flows)-1)*each })
	s.operateFlow("resume", "f0")
	s.AwaitDelivered(20 * time.Second)
	s.awaitIdleFlows(10 * time.Second)
	r := s.History.Check()
	t.Log(r)
	if fault := once(t, r); fault != "" {
		t.Error(fault)
	}
	if err := client.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	s.postFlow("after", 1)
	s.AwaitDelivered(10 * time.Second)
}
