package dispatcher

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/checker"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
)

// hosts is a worker whose receivers take very different times to connect. It says what arrives where, and when.
type hosts struct {
	connects func(flow string) time.Duration
	closes   bool // each connection after its response; else one is kept for each host and request at a time

	mu       sync.Mutex
	idle     map[string]int // connections that no request uses
	arrivals map[string][]time.Time
	history  checker.History
	late     int // permits that came back unused
}

func (h *hosts) Deliver(_ context.Context, a *shaper.Attempt) shaper.Outcome {
	h.mu.Lock()
	isThere := h.idle[a.Flow] > 0
	if isThere {
		h.idle[a.Flow]--
	}
	h.mu.Unlock()
	if !isThere {
		<-time.After(h.connects(a.Flow))
	}
	departs := a.Depart() == nil
	h.mu.Lock()
	defer h.mu.Unlock()
	if !departs {
		h.idle[a.Flow]++
		h.late++
		return shaper.Returned("late")
	}
	if !h.closes {
		h.idle[a.Flow]++
	}
	h.arrivals[a.Flow] = append(h.arrivals[a.Flow], time.Now())
	h.history.Delivered(a.ID, a.Number, time.Now())
	return shaper.Done(200)
}

// TestOneSlowHost: one host of 3 s connect time beside 50 fast ones. The fast ones get the rate, the slow one its share and its quota too, and the stream
// is as even as ever.
func TestOneSlowHost(t *testing.T) {
	t.Parallel()
	const settles, slow = 10 * time.Second, "slow.example"
	length := 45 * time.Second
	if redistest.Soak {
		length = 130 * time.Second
	}
	for name, c := range map[string]struct {
		rate   int64 // of the bucket, a second
		fast   int
		flow   string // its rate; "": none
		quota  string
		closes bool
		want   float64 // that each host gets, a second
		isLong bool    // only of the soak
	}{
		"share, connections kept":      {10, 50, "", "", false, 10. / 51, true},
		"share, connections closed":    {10, 50, "", "", true, 10. / 51, false},
		"quota, connections kept":      {20, 50, "", "2/10s", false, .2, true},
		"quota, connections closed":    {20, 50, "", "2/10s", true, .2, false},
		"rate, connections closed":     {20, 10, "1/s", "", true, 1, true},
		"rate and quota, none is kept": {20, 10, "1/s", "8/10s", true, .8, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.isLong && !redistest.Soak {
				t.Skip("the engine of 50 flows costs seconds")
			}
			synctest.Test(t, func(t *testing.T) {
				b := rig.Flowing("b", shaper.FlowKeyHost)
				b.Rate.Count = c.rate
				if c.flow != "" {
					b.Flow.Rate = rig.MustRate(t, c.flow)
				}
				if c.quota != "" {
					b.Flow.Quotas = []admission.Rate{rig.MustRate(t, c.quota)}
				}
				names := []string{slow}
				for i := range c.fast {
					names = append(names, fmt.Sprintf("fast%d.example", i))
				}
				var jobs []shaper.Job
				for n := range int(c.want*length.Seconds()*1.3) + 2 {
					for _, host := range names {
						jobs = append(jobs, shaper.Job{Bucket: b.Name, ID: fmt.Sprint(host, "-", n), URL: "http://" + host + "/", Payload: []byte("{}")})
					}
				}
				h := &hosts{idle: map[string]int{}, arrivals: map[string][]time.Time{}, closes: c.closes, connects: func(flow string) time.Duration {
					if flow == slow {
						return 3 * time.Second
					}
					return 20 * time.Millisecond
				}}
				began := time.Now()
				drainJobs(t, b, jobs, h, length, nil)
				since := func(host string) float64 {
					at := h.arrivals[host]
					i, _ := slices.BinarySearchFunc(at, began.Add(settles), time.Time.Compare)
					return float64(len(at)-i) / (length - settles).Seconds()
				}
				least := c.want
				for _, host := range names[1:] {
					least = min(least, since(host))
				}
				r := h.history.Check()
				inSecond, inTenth := r.MostIn(time.Second), r.MostIn(100*time.Millisecond)
				t.Logf("a host wants %.3f/s; slow %.3f/s, the slowest of the fast %.3f/s; all %.2f/s, most in 1s %d, in 100ms %d; late %d", c.want, since(slow), least, r.Rate, inSecond, inTenth, h.late)
				one := 1 / (length - settles).Seconds() // arrival more or less, at the edges of the time
				if since(slow) < .95*c.want-one {
					t.Errorf("the slow host gets %.3f/s, want %.3f/s", since(slow), c.want)
				}
				if least < .95*c.want-one {
					t.Errorf("a fast host gets %.3f/s, want %.3f/s", least, c.want)
				}
				if want := .95 * c.want * float64(len(names)); r.Rate < want {
					t.Errorf("%.2f/s, want %.2f/s", r.Rate, want)
				}
				if inSecond > int(c.rate)*105/100+1 || inTenth > int(c.rate)*12/100+2 {
					t.Errorf("%d in a second, %d in 100 ms", inSecond, inTenth)
				}
				if h.late > 0 {
					t.Errorf("%d permits came back unused", h.late)
				}
			})
		})
	}
}
