//go:build soak

package soak

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// TestHold: a receiver asks one flow to wait, in the ways in which receivers do. Nothing of the flow arrives before the time is over but
// what was under way, no attempt is spent, and another flow keeps its rate.
func TestHold(t *testing.T) {
	const rate, jobs, before, hold = 100, 500, 20, 3 * time.Second
	for name, ask := range map[string]func(h http.Header){
		"retry-after": func(h http.Header) { h.Set("Retry-After", "3") },
		"x-ratelimit": func(h http.Header) {
			h.Set("X-RateLimit-Remaining", "0")
			h.Set("X-RateLimit-Reset", "3")
		},
	} {
		t.Run(name, func(t *testing.T) {
			harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
				var a harness.ArrivalLog
				var mu sync.Mutex
				var arrived, refused int
				var first time.Time
				s := start(t, redistest.Start(t), harness.Plan{
					Rate: 2 * rate, Dispatchers: 4, Bucket: flowTable(fmt.Sprintf(`rate = "%d/s"`, rate)),
					Respond: func(w http.ResponseWriter, r *http.Request, id string, attempt int) {
						if strings.HasPrefix(id, "other") {
							a.Respond(w, r, id, attempt)
							return
						}
						mu.Lock()
						defer mu.Unlock()
						arrived++
						if arrived > before && first.IsZero() {
							first = time.Now()
						}
						if !first.IsZero() && time.Since(first) < hold {
							refused++
							ask(w.Header())
							w.WriteHeader(http.StatusTooManyRequests)
							return
						}
						a.Respond(w, r, id, attempt)
					}})
				s.postFlow("other", 12*rate)
				s.postFlow("asked", jobs)
				harness.Await(t, 60*time.Second, "all is delivered", func() bool { return s.Unfinished() == 0 })
				r := s.History.Check()
				harness.Report(t, rate, r)
				other := a.Sorted("other")
				took := other[len(other)-1].Sub(other[0])
				t.Logf("%d requests were refused; the others had %.1f %% of their rate", refused, 100*float64(len(other)-1)/rate/took.Seconds())
				if len(r.Lost) > 0 {
					t.Fatalf("lost %v", r.Lost)
				}
				if refused > rate/5+4 { // what was claimed, up to 200 ms ahead
					return fmt.Sprintf("%d requests arrived while the flow was held", refused)
				}
				return ""
			})
		})
	}
}

// TestDeadReceiver: while a receiver does not work it gets one probe an interval, which is no attempt of a job. Once it works again, the
// jobs leave at the pace.
func TestDeadReceiver(t *testing.T) {
	const rate, jobs, down = 200, 10_000, 12 * time.Second
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		var a harness.ArrivalLog
		var mu sync.Mutex
		var died time.Time
		var refused []time.Time
		s := start(t, redistest.Start(t), harness.Plan{
			Rate: rate, Dispatchers: 4, Bucket: "[buckets.breaker]\nopen_for = \"1s\"\nmax_open = \"2s\"\n" + flowTable(),
			Respond: func(w http.ResponseWriter, r *http.Request, id string, attempt int) {
				mu.Lock()
				if died.IsZero() {
					died = time.Now()
				}
				if time.Since(died) < down {
					refused = append(refused, time.Now())
					mu.Unlock()
					panic(http.ErrAbortHandler)
				}
				mu.Unlock()
				a.Respond(w, r, id, attempt)
			}})
		s.postFlow("one", jobs)
		harness.Await(t, 120*time.Second, "all is delivered", func() bool { return s.Unfinished() == 0 })
		r := s.History.Check()
		harness.Report(t, rate, r)
		if len(r.Lost) > 0 {
			t.Fatalf("lost %v", r.Lost)
		}
		mu.Lock()
		defer mu.Unlock()
		probes, back := 0, a.All()[0].Sub(died.Add(down))
		for _, at := range refused {
			if at.Sub(died) > time.Second {
				probes++
			}
		}
		t.Logf("%d requests in the first second, then %d probes in %s; the first job arrived %s after the receiver was back",
			len(refused)-probes, probes, down-time.Second, back.Round(time.Millisecond))
		if first := len(refused) - probes; first > rate/5+20 { // what was claimed, up to 200 ms ahead
			return fmt.Sprintf("%d requests before it was open", first)
		}
		if probes > 8 || back > 2*time.Second+500*time.Millisecond {
			return fmt.Sprintf("%d probes, back after %s", probes, back)
		}
		return stall.Crowded(r.MostIn, rate, harness.Steady, time.Second, 100*time.Millisecond)
	})
}

// TestHungReceivers: receivers that hang cost a healthy one nothing, within the bounds of each flow.
func TestHungReceivers(t *testing.T) {
	const rate, healthy, seconds = 400, 100, 20
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		var a harness.ArrivalLog
		over := make(chan struct{})
		defer close(over) // so that dispatchers stop without waiting for those that hang
		s := start(t, redistest.Start(t), harness.Plan{
			Rate: rate, Dispatchers: 2, Lease: 40 * time.Second, Timeout: 30 * time.Second,
			Bucket: flowTable(`rate = "100/s"`, "max_in_flight = 20", "capacity = 5000"),
			Respond: func(w http.ResponseWriter, r *http.Request, id string, attempt int) {
				if strings.HasPrefix(id, "hung") {
					_, _ = io.Copy(io.Discard, r.Body) // so that the server notices when the sender gives up
					select {
					case <-r.Context().Done():
					case <-over:
					}
					return
				}
				a.Respond(w, r, id, attempt)
			}})
		var hung []string
		for i := range 10 {
			hung = append(hung, fmt.Sprint("hung", i))
		}
		s.postFlows(hung, 100)
		<-time.After(time.Second)
		s.postFlow("healthy", healthy*seconds)
		harness.Await(t, 60*time.Second, "a quarter of the healthy flow is through", func() bool { return len(a.Of("healthy")) >= healthy*seconds/4 })
		before := s.weigh()
		harness.Await(t, 60*time.Second, "the healthy flow is through", func() bool { return len(a.Of("healthy")) >= healthy*seconds })
		after := s.weigh()
		times := a.Sorted("healthy")
		took := times[len(times)-1].Sub(times[0])
		share := 100 * float64(len(times)-1) / healthy / took.Seconds()
		perSecond := make([]int, int(took.Seconds())+1)
		for _, at := range times {
			perSecond[int(at.Sub(times[0]).Seconds())]++
		}
		t.Logf("the healthy flow had %.1f %% of its rate: %v; %s, at the end %s", share, perSecond, before, after)
		if after.goroutines > before.goroutines*1.2+50 || after.bytes > before.bytes*1.3 {
			return fmt.Sprintf("they grew: %s, then %s", before, after)
		}
		if share < 98-100*stall.Cost().Seconds()/seconds {
			return fmt.Sprintf("%.1f %% of its rate", share)
		}
		return ""
	})
}

// weight is what dispatchers take.
type weight struct{ goroutines, bytes float64 }

func (w weight) String() string {
	return fmt.Sprintf("%.0f goroutines in %.0f MiB", w.goroutines, w.bytes/(1<<20))
}

// weigh sums what all dispatchers take, by their metrics.
func (s *system) weigh() (sum weight) {
	s.T.Helper()
	for _, ops := range s.OpsOf {
		answer, err := http.Get(ops + "/metrics")
		if err != nil {
			s.T.Fatal(err)
		}
		for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
			var value float64
			if name, text, _ := strings.Cut(lines.Text(), " "); name == "go_goroutines" || name == "process_resident_memory_bytes" {
				if _, err := fmt.Sscan(text, &value); err != nil {
					s.T.Fatal(err)
				}
				if name == "go_goroutines" {
					sum.goroutines += value
				} else {
					sum.bytes += value
				}
			}
		}
		if err := answer.Body.Close(); err != nil || sum.bytes == 0 {
			s.T.Fatalf("metrics of %s: %v", ops, err)
		}
	}
	return sum
}

// plotFile is where TestAdapts draws what it saw: docs/adaptive.svg.
var plotFile = flag.String("plot", "", "draw what TestAdapts saw into this file")

// TestAdapts: a receiver has a limit of its own, a quarter of the configured rate, and says nothing but 429. The rate finds it, follows it when
// it is halved, and climbs back.
func TestAdapts(t *testing.T) {
	const configured = 400
	limits := []int{100, 50, 100} // of each phase
	phases := []time.Duration{30 * time.Second, 50 * time.Second, 75 * time.Second}
	harness.Quietly(t, func(t *testing.T, _ *harness.StallWatch) string {
		var mu sync.Mutex
		var began time.Time
		var taken, accepted, throttled []time.Time
		limit := func(at time.Duration) int {
			for i, end := range phases {
				if at < end {
					return limits[i]
				}
			}
			return limits[len(limits)-1]
		}
		s := start(t, redistest.Start(t), harness.Plan{
			Rate: configured, Dispatchers: 2, Bucket: flowTable(),
			Respond: func(w http.ResponseWriter, _ *http.Request, _ string, _ int) {
				mu.Lock()
				defer mu.Unlock()
				now := time.Now()
				if began.IsZero() {
					began = now
				}
				for len(taken) > 0 && now.Sub(taken[0]) >= time.Second {
					taken = taken[1:]
				}
				if len(taken) >= limit(now.Sub(began)) {
					throttled = append(throttled, now)
					w.WriteHeader(http.StatusTooManyRequests)
					return
				}
				taken, accepted = append(taken, now), append(accepted, now)
			}})
		s.postFlow("one", 9000)
		in := func(list []time.Time, from, to time.Duration) int {
			n := 0
			for _, at := range list {
				if d := at.Sub(began); d >= from && d < to {
					n++
				}
			}
			return n
		}
		last := phases[len(phases)-1]
		harness.Await(t, 2*last, "the phases are over", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return !began.IsZero() && time.Since(began) > last
		})
		mu.Lock()
		defer mu.Unlock()
		var fault string
		for i, from := range []time.Duration{20 * time.Second, 45 * time.Second, 65 * time.Second} { // 15 s after a change, 20 s at first
			took, refused := in(accepted, from, phases[i]), in(throttled, from, phases[i])
			share := 100 * float64(took) / float64(limits[i]) / (phases[i] - from).Seconds()
			t.Logf("%s to %s: %.0f %% of what the receiver takes, %.1f %% of the answers were 429", from, phases[i], share,
				100*float64(refused)/float64(took+refused))
			if share < 85 || refused*20 > took+refused {
				fault = fmt.Sprintf("from %s: %.0f %% and %d refused of %d", from, share, refused, took+refused)
			}
		}
		if *plotFile != "" {
			seconds := int(last.Seconds())
			var plot plotted
			for i := range seconds {
				from, to := time.Duration(i)*time.Second, time.Duration(i+1)*time.Second
				plot.accepted = append(plot.accepted, in(accepted, from, to))
				plot.throttled = append(plot.throttled, in(throttled, from, to))
				plot.limit = append(plot.limit, limit(from))
			}
			if err := os.WriteFile(*plotFile, []byte(plot.svg()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return fault
	})
}
