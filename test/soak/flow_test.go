//go:build soak

package soak

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// TestFlowRates: each flow keeps its rate under that of the bucket, and the
// backlog of one is not the others' wait.
func TestFlowRates(t *testing.T) {
	const rate, flowRate, each, flood = 200, 20, 100, 400
	small := flowNames(8)
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		var a harness.ArrivalLog
		s := start(t, redistest.Start(t), harness.Plan{
			Rate: rate, Dispatchers: 2, Respond: a.Respond, Bucket: flowTable(fmt.Sprintf(`rate = "%d/s"`, flowRate)),
		})
		s.postFlow("flood", flood)
		s.postFlows(small, each)
		posted := time.Now()
		r := s.AwaitDelivered(40 * time.Second)
		s.awaitIdleFlows(10 * time.Second)
		harness.Report(t, rate, r)
		var last time.Duration
		for _, flow := range small {
			last = max(last, a.Latest(flow).Sub(posted))
		}
		every := append(slices.Clone(small), "flood")
		t.Logf("the small flows were through after %s of %s; most of a flow in 1s %d, in 200ms %d", last.Round(time.Millisecond),
			each*time.Second/flowRate, a.MostOfEach(every, time.Second), a.MostOfEach(every, 200*time.Millisecond))
		if fault := once(t, r); fault != "" {
			return fault
		}
		if want := (each+2)*time.Second/flowRate + stall.Cost(); last > want {
			return fmt.Sprintf("the small flows were through after %s, want %s", last, want)
		}
		flooded := a.Sorted("flood")
		if took, want := flooded[flood-1].Sub(flooded[0]), (flood+2)*time.Second/flowRate+stall.Cost(); took > want {
			return fmt.Sprintf("the flood took %s, want %s", took, want)
		}
		if fault := a.Crowded(stall, every, flowRate, harness.Steady, time.Second, 200*time.Millisecond); fault != "" {
			return fault
		}
		return stall.Crowded(r.MostIn, rate, harness.Steady, time.Second, 100*time.Millisecond)
	})
}

// TestFlowsTakeTurns: a job of a flow waits for one of each other flow at most, however
// many of another came before it.
func TestFlowsTakeTurns(t *testing.T) {
	const rate, flood, each = 100, 600, 5
	small := flowNames(20)
	const round = time.Duration(21) * time.Second / rate // of 20 and the flood
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		var a harness.ArrivalLog
		s := start(t, redistest.Start(t), harness.Plan{Rate: rate, Dispatchers: 2, Respond: a.Respond, Bucket: flowTable()})
		s.postFlow("flood", flood)
		s.postFlows(small, each)
		posted := time.Now()
		r := s.AwaitDelivered(30 * time.Second)
		s.awaitIdleFlows(10 * time.Second)
		harness.Report(t, rate, r)
		var last, longest time.Duration
		for _, flow := range small {
			before := posted
			for _, at := range a.Sorted(flow) {
				longest = max(longest, at.Sub(before))
				before = at
			}
			last = max(last, before.Sub(posted))
		}
		t.Logf("the small flows were through after %s, %d rounds are %s; the longest wait of one for its turn was %s", last.Round(time.Millisecond),
			each, each*round, longest.Round(time.Millisecond))
		switch fault := once(t, r); {
		case fault != "":
			return fault
		case last > 2*each*round+stall.Cost():
			return fmt.Sprintf("the small flows were through after %s, want %s", last, 2*each*round)
		case longest > 2*round+stall.Cost():
			return fmt.Sprintf("one waited %s for its turn, want %s", longest, 2*round)
		}
		if fault := stall.Crowded(r.MostIn, rate, harness.Steady, time.Second); fault != "" {
			return fault
		}
		return stall.Slow(r.Rate, rate, flood+len(small)*each, .98)
	})
}

// busyFlows counts who of each flow is being answered at a time.
type busyFlows struct {
	hold time.Duration

	mu  sync.Mutex
	all map[string]*busy
}

func (b *busyFlows) of(flow string) *busy {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all == nil {
		b.all = map[string]*busy{}
	}
	if b.all[flow] == nil {
		b.all[flow] = &busy{hold: b.hold}
	}
	return b.all[flow]
}

func (b *busyFlows) respond(w http.ResponseWriter, r *http.Request, id string, attempt int) {
	flow, _, _ := strings.Cut(id, "-")
	b.of(flow).respond(w, r, id, attempt)
}

// TestFlowInFlightBound: as many of a flow are on their way as may be, never more,
// and what the bound allows is reached.
func TestFlowInFlightBound(t *testing.T) {
	const bound, each = 2, 60
	flows := flowNames(4)
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		var a harness.ArrivalLog
		b := &busyFlows{hold: 200 * time.Millisecond}
		s := start(t, redistest.Start(t), harness.Plan{
			Rate: 1000, Dispatchers: 2, Bucket: flowTable(fmt.Sprintf("max_in_flight = %d", bound)),
			Respond: func(w http.ResponseWriter, r *http.Request, id string, attempt int) {
				a.Respond(w, r, id, attempt)
				b.respond(w, r, id, attempt)
			},
		})
		s.postFlows(flows, each)
		r := s.AwaitDelivered(30 * time.Second)
		s.awaitIdleFlows(10 * time.Second)
		harness.Report(t, 1000, r)
		slowest, fault := 1.0, once(t, r)
		for _, flow := range flows {
			busy, times := b.of(flow), a.Sorted(flow)
			if busy.highest() > bound {
				t.Fatalf("%d of flow %s at a time", busy.highest(), flow)
			}
			possible := bound / busy.each().Seconds()
			seen := (each - bound) / times[each-1].Sub(times[0]).Seconds()
			slowest = min(slowest, seen/possible)
			t.Logf("flow %s: at most %d at a time, %.2f/s of %.2f/s", flow, busy.highest(), seen, possible)
		}
		if fault == "" && slowest < .95 {
			fault = fmt.Sprintf("a flow reached %.1f %% of what its bound allows, want 95 %%", 100*slowest)
		}
		return fault
	})
}

// TestFlowPause: an operator stops one flow of many under load, and lets it go on. The others
// keep their rate meanwhile, but for the permits that dispatchers give back because the machine woke them late: then a flow waits for an interval.
func TestFlowPause(t *testing.T) {
	const rate, flowRate, each, stands = 200, 20, 120, 3 * time.Second
	flows := flowNames(5)
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		var a harness.ArrivalLog
		s := start(t, redistest.Start(t), harness.Plan{
			Rate: rate, Dispatchers: 2, Respond: a.Respond, Bucket: flowTable(fmt.Sprintf(`rate = "%d/s"`, flowRate)),
		})
		s.postFlows(flows, each)
		harness.Await(t, 10*time.Second, "deliveries go on", func() bool { return len(a.Of("f0")) >= 20 })
		s.operateFlow("pause", "f0", "--reason", "a test")
		paused := time.Now()
		permits := s.permitsReturned()
		quietFor(t, paused, stands)
		returned := s.permitsReturned() - permits
		late, before := a.Latest("f0").Sub(paused), len(a.Of("f0"))
		fewest, others := each, 0
		for _, flow := range flows[1:] {
			times := slices.DeleteFunc(a.Of(flow), func(at time.Time) bool { return at.Before(paused) || at.Sub(paused) > stands })
			fewest, others = min(fewest, len(times)), others+len(times)
		}
		s.operateFlow("resume", "f0")
		resumed := time.Now()
		r := s.AwaitDelivered(30 * time.Second)
		s.awaitIdleFlows(10 * time.Second)
		harness.Report(t, rate, r)
		rest := a.Sorted("f0")[before:]
		first, took := rest[0].Sub(resumed), rest[len(rest)-1].Sub(rest[0])
		due := flowRate * (stands - stall.Cost()).Seconds()
		t.Logf("the last one left %s after the pause, of each other flow %d or more in %s, of all %d, and %d permits were given back; the first one came %s after the end of it, %d in %s",
			late.Round(time.Millisecond), fewest, stands, others, returned, first.Round(time.Millisecond), len(rest), took.Round(time.Millisecond))
		switch fault := once(t, r); {
		case fault != "":
			return fault
		case late > obeyed+stall.SoFar():
			return fmt.Sprintf("a job left %s after the pause of its flow", late)
		case float64(fewest+returned) < .95*due:
			return fmt.Sprintf("of another flow only %d left in %s, with %d permits that were given back", fewest, stands, returned)
		case float64(others+returned) < .95*due*float64(len(flows)-1):
			return fmt.Sprintf("of the other flows only %d left in %s, with %d permits that were given back", others, stands, returned)
		case first > obeyed+stall.SoFar():
			return fmt.Sprintf("the first one left %s after the end of the pause", first)
		case took > time.Duration(len(rest)+2)*time.Second/flowRate+stall.Cost():
			return fmt.Sprintf("%d jobs at %d/s took %s", len(rest), flowRate, took)
		}
		if fault := a.Crowded(stall, flows, flowRate, harness.Steady, time.Second, 200*time.Millisecond); fault != "" {
			return fault
		}
		return stall.Crowded(r.MostIn, rate, harness.Steady, time.Second, 100*time.Millisecond)
	})
}

// deadCauses is how many dead letters there are by their cause, as `dispatcher dead list` tells.
func (s *system) deadCauses() map[string]int {
	s.T.Helper()
	out, err := exec.CommandContext(s.T.Context(), filepath.Join(harness.Programs, "dispatcher"), "dead", "list", harness.BucketName,
		"--limit", "1000", "--json", "--config", s.Config).Output()
	if err != nil {
		s.T.Fatalf("dead list: %v", err)
	}
	var letters []struct {
		LastResponse struct{ Cause string } `json:"last_response"`
	}
	if err := json.Unmarshal(out, &letters); err != nil {
		s.T.Fatalf("dead list: %v\n%s", err, out)
	}
	causes := map[string]int{}
	for _, letter := range letters {
		causes[letter.LastResponse.Cause]++
	}
	return causes
}

// TestExpiryAndPriority: of what waits, the more important leaves first, and what nobody
// wants any more not at all.
func TestExpiryAndPriority(t *testing.T) {
	const rate, each = 5, 6
	for name, c := range map[string]struct{ bucket, flow string }{
		"without flows": {},
		"of a flow":     {flowTable(), `,"flow":"acme"`},
	} {
		t.Run(name, func(t *testing.T) {
			harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
				var a harness.ArrivalLog
				s := start(t, redistest.Start(t), harness.Plan{Rate: rate, Dispatchers: 2, Respond: a.Respond, Bucket: c.bucket})
				s.PostAs("normal", each, c.flow)
				s.PostAs("expiring", each, c.flow+`,"expires_in":"1s"`)
				for i := range each {
					s.History.Dead(fmt.Sprint("expiring-", i)) // else waiting for them to arrive would not end
				}
				s.PostAs("low", each, c.flow+`,"priority":"low"`)
				s.PostAs("critical", each, c.flow+`,"priority":"critical"`)
				posted := time.Now()
				r := s.AwaitDelivered(20 * time.Second)
				harness.Await(t, 10*time.Second, "what has expired is dead", func() bool { return s.deadCauses()["expired"] == each })
				harness.Report(t, rate, r)
				if n := len(a.Of("expiring")); n > 0 {
					t.Errorf("%d that had expired left", n)
				}
				status, answer := s.Request(http.MethodGet, "/v1/buckets/"+harness.BucketName+"/jobs/expiring-0", "", nil)
				if status != http.StatusOK || !strings.Contains(string(answer), `"dead"`) || !strings.Contains(string(answer), `"expired"`) {
					t.Errorf("a job that has expired: %d %s", status, answer)
				}
				critical, normal, low := a.Sorted("critical"), a.Sorted("normal"), a.Sorted("low")
				overtaken := slices.IndexFunc(normal, func(at time.Time) bool { return at.After(critical[0]) })
				t.Logf("critical ones %s to %s after they came, after %d normal ones; dead: %v", critical[0].Sub(posted).Round(time.Millisecond),
					critical[each-1].Sub(posted).Round(time.Millisecond), overtaken, s.deadCauses())
				switch fault := once(t, r); {
				case fault != "":
					return fault
				case overtaken < 0 || normal[overtaken].Before(critical[each-1]):
					return "a normal one left among the critical ones"
				case low[0].Before(normal[each-1]):
					return "a low one left before a normal one"
				// One slot may have been handed out a horizon before.
				case critical[0].Sub(posted) > 2*time.Second/rate+stall.Cost():
					return fmt.Sprintf("the first critical one left after %s", critical[0].Sub(posted))
				}
				return stall.Crowded(r.MostIn, rate, harness.Steady, time.Second)
			})
		})
	}
}

// TestQuotas: no window has more departures in it than a quota of the bucket or of a flow
// allows, and as many leave as may.
func TestQuotas(t *testing.T) {
	const rate, quota, flowQuota, window = 50, 30, 12, 3 * time.Second
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		var a harness.ArrivalLog
		s := start(t, redistest.Start(t), harness.Plan{
			Rate: rate, Dispatchers: 2, Respond: a.Respond,
			Bucket: fmt.Sprintf("quotas = [\"%d/3s\"]\n", quota) + flowTable(fmt.Sprintf(`quotas = ["%d/3s"]`, flowQuota)),
		})
		// The first two windows are as full as the bucket's quota lets them be; then the big
		// flow is alone, and its own holds it back.
		flows := flowNames(3)
		s.postFlows(flows, 18)
		s.postFlow("big", 36)
		asked := s.scriptCalls()
		r := s.AwaitDelivered(30 * time.Second)
		asked = s.scriptCalls() - asked
		s.awaitIdleFlows(10 * time.Second)
		harness.Report(t, rate, r)
		all, big := a.All(), a.Sorted("big")
		since := func(n int) time.Duration { return all[n].Sub(all[0]).Round(time.Millisecond) }
		took := big[len(big)-1].Sub(all[0])
		t.Logf("of 90 jobs the 31st left after %s, the 61st after %s, the last after %s; of the big flow at most %d in 3s; %d calls of scripts",
			since(quota), since(2*quota), took.Round(time.Millisecond), harness.MostOf(big, window-harness.Steady), asked)
		if fault := once(t, r); fault != "" {
			return fault
		}
		within := window - stall.SoFar() // the margin of a quota is for what is late without a stall
		if n := harness.MostOf(all, within); n > quota {
			return fmt.Sprintf("%d in %s, want %d in %s", n, within, quota, window)
		}
		if n := a.MostOfEach(append(flows, "big"), within); n > flowQuota {
			return fmt.Sprintf("%d of a flow in %s, want %d in %s", n, within, flowQuota, window)
		}
		for n := range 3 {
			if at, want := since(n*quota), time.Duration(n)*(window+window/50); at > want+100*time.Millisecond+stall.Cost() {
				return fmt.Sprintf("job %d left after %s, want %s", n*quota+1, at, want)
			}
		}
		if most := 10 * len(all); asked > most { // a settle, and some claims of two processes that find nothing
			return fmt.Sprintf("%d calls of scripts, want %d at most", asked, most)
		}
		// What the big flow had to leave over in the third window goes at the begin of the fourth.
		if want := 3*window + time.Second; took > want+stall.Cost() {
			return fmt.Sprintf("all left in %s, want %s", took, want)
		}
		return stall.Crowded(r.MostIn, rate, harness.Steady, time.Second)
	})
}
