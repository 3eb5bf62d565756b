//go:build soak

package soak

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// TestDownstreamFaults: dispatchers die and Redis stands still while the flow is held, while its breaker is open, and while the probe is
// under way. Nothing is lost, nothing arrives before it may, and no window holds more than its share.
func TestDownstreamFaults(t *testing.T) {
	const rate, jobs, lease = 100, 600, 3 * time.Second
	for name, fault := range map[string]func(s *system){
		"kill": func(s *system) {
			for i := range s.Dispatchers {
				s.Dispatchers[i].Kill()
				s.Dispatchers[i] = s.Restart[i]()
			}
		},
		"redis": func(s *system) {
			s.Redis.Stop()
			<-time.After(1500 * time.Millisecond)
			s.Redis.Cont()
		},
	} {
		t.Run(name, func(t *testing.T) {
			harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
				var a harness.ArrivalLog
				var mu sync.Mutex
				answer := "ok" // what the receiver does: ok, hold, dead, hang
				var holdUntil time.Time
				var early, hung int
				s := start(t, redistest.Start(t), harness.Plan{
					Rate: rate, Dispatchers: 2, Lease: lease, Timeout: 2500 * time.Millisecond,
					Bucket: "[buckets.breaker]\nopen_for = \"1s\"\nmax_open = \"1s\"\n" + flowTable(),
					Respond: func(w http.ResponseWriter, r *http.Request, id string, attempt int) {
						mu.Lock()
						does, now := answer, time.Now()
						switch does {
						case "hold":
							if holdUntil.IsZero() {
								holdUntil = now.Add(4 * time.Second)
							} else if wait := holdUntil.Sub(now); wait > 0 && wait < 3500*time.Millisecond {
								early++ // what was claimed before goes within 200 ms
							}
							if now.Before(holdUntil) {
								w.Header().Set("Retry-After", "4")
								w.WriteHeader(http.StatusTooManyRequests)
								mu.Unlock()
								return
							}
						case "hang":
							hung++
						}
						mu.Unlock()
						switch does {
						case "dead":
							panic(http.ErrAbortHandler)
						case "hang":
							_, _ = io.Copy(io.Discard, r.Body)
							<-r.Context().Done()
							return
						}
						a.Respond(w, r, id, attempt)
					}})
				become := func(what string) {
					mu.Lock()
					defer mu.Unlock()
					answer = what
				}
				says := func() string { return s.Inspector.HGet(t.Context(), s.Key("flows"), "one").Val() }
				breaker := func(state int) func() bool {
					return func() bool {
						var till, count, per, is int64
						_, _ = fmt.Sscanf(says(), "@%d,%d,%d,%d,", &till, &count, &per, &is)
						return is == int64(state)
					}
				}
				s.postFlow("one", jobs)
				harness.Await(t, 20*time.Second, "jobs arrive", func() bool { return len(a.Of("one")) > 50 })
				become("hold")
				harness.Await(t, 20*time.Second, "the flow is held", func() bool { return len(says()) > 0 && says()[0] == '@' })
				fault(s)
				harness.Await(t, 20*time.Second, "the hold is over", func() bool {
					mu.Lock()
					defer mu.Unlock()
					return !holdUntil.IsZero() && time.Since(holdUntil) > 0
				})
				become("dead")
				harness.Await(t, 20*time.Second, "the breaker is open", breaker(1))
				fault(s)
				become("hang")
				harness.Await(t, 20*time.Second, "a probe is under way", breaker(2))
				fault(s)
				harness.Await(t, 20*time.Second, "a probe has failed", breaker(1))
				become("ok")
				harness.Await(t, 60*time.Second, "all is delivered", func() bool { return s.Unfinished() == 0 })
				r := s.History.Check()
				harness.Report(t, rate, r)
				t.Logf("%d requests during the hold, %d probes that hung", early, hung)
				switch {
				case len(r.Lost) > 0 || r.Dead > 0:
					t.Fatalf("lost %v, %d dead", r.Lost, r.Dead)
				case early > 0:
					return fmt.Sprintf("%d requests during the hold", early)
				case hung > 6:
					return fmt.Sprintf("%d probes", hung)
				}
				return stall.Crowded(r.MostIn, rate, harness.Spread, time.Second)
			})
		})
	}
}
