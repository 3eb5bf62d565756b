//go:build soak

package test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
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
			quietly(t, func(t *testing.T, stall *stallWatch) string {
				var a arrivalLog
				var mu sync.Mutex
				var arrived, refused int
				var first time.Time
				s := start(t, redistest.Start(t), plan{
					rate: 2 * rate, dispatchers: 4, bucket: flowTable(fmt.Sprintf(`rate = "%d/s"`, rate)),
					respond: func(w http.ResponseWriter, r *http.Request, id string, attempt int) {
						if strings.HasPrefix(id, "other") {
							a.respond(w, r, id, attempt)
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
						a.respond(w, r, id, attempt)
					}})
				s.postFlow("other", 12*rate)
				s.postFlow("asked", jobs)
				await(t, 60*time.Second, "all is delivered", func() bool { return s.unfinished() == 0 })
				r := s.history.Check()
				report(t, rate, r)
				other := a.sorted("other")
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

// TestAdapts: a receiver with a limit of its own, which says nothing but 429.
func TestAdapts(t *testing.T) {
	const configured = 400
	limit := 100
	var mu sync.Mutex
	var taken []time.Time
	var accepted, throttled []time.Time
	s := start(t, redistest.Start(t), plan{
		rate: configured, dispatchers: 2, bucket: flowTable(),
		respond: func(w http.ResponseWriter, _ *http.Request, _ string, _ int) {
			mu.Lock()
			defer mu.Unlock()
			now := time.Now()
			for len(taken) > 0 && now.Sub(taken[0]) >= time.Second {
				taken = taken[1:]
			}
			if len(taken) >= limit {
				throttled = append(throttled, now)
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			taken = append(taken, now)
			accepted = append(accepted, now)
		}})
	s.postFlow("one", 6000)
	began := time.Now()
	in := func(list []time.Time, from, to time.Duration) int {
		n := 0
		for _, at := range list {
			if d := at.Sub(began); d >= from && d < to {
				n++
			}
		}
		return n
	}
	for second := range 60 {
		if second == 30 {
			mu.Lock()
			limit = 50
			mu.Unlock()
		}
		<-time.After(time.Until(began.Add(time.Duration(second+1) * time.Second)))
		mu.Lock()
		from, to := time.Duration(second)*time.Second, time.Duration(second+1)*time.Second
		t.Logf("%2d s: %3d accepted, %3d throttled; %s", second, in(accepted, from, to), in(throttled, from, to),
			s.inspector.HGet(t.Context(), s.key("flows"), "one").Val())
		mu.Unlock()
	}
}
