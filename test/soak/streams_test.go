//go:build soak

package soak

import (
	"cmp"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper/fleet"
	"github.com/tundish-io/tundish/test/harness"
)

// TestStreamsDisturbNothing: with a hundred streams open the stream of jobs is as even as without one, and each of them is told all of it.
func TestStreamsDisturbNothing(t *testing.T) {
	const rate, jobs, viewers = 500, 5000, 100
	for name, streams := range map[string]int{"none": 0, "100": viewers} {
		t.Run(name, func(t *testing.T) {
			harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
				s := start(t, redistest.Start(t), harness.Plan{Rate: rate, Dispatchers: 2})
				var heard []*harness.Streamed
				for i := range streams {
					path := []string{"/v1/stream", "/console/stream"}[i%2] // of the API and of the console
					heard = append(heard, harness.ReadStreamAt(t, s.OpsOf[i/2%len(s.OpsOf)]+path+"?bucket="+harness.BucketName))
				}
				harness.Await(t, 20*time.Second, "all processes tell each second", func() bool {
					for _, h := range heard {
						if _, _, processes, seconds, _ := h.Get(); processes < 3 || seconds < 9 {
							return false
						}
					}
					return true
				})
				s.Post("watched", jobs)
				r := s.AwaitDelivered(30 * time.Second)
				harness.Report(t, rate, r)
				if r.Err() != nil {
					t.Fatal(r.Err())
				}
				harness.Await(t, 20*time.Second, "all streams tell all", func() bool {
					for _, h := range heard {
						if sum, _, _, _, _ := h.Get(); sum.Departed != jobs {
							return false
						}
					}
					return true
				})
				return cmp.Or(stall.Crowded(r.MostIn, rate, harness.Steady, time.Second, 100*time.Millisecond), stall.Slow(r.Rate, rate, jobs, .98))
			})
		})
	}
}

// TestStreamGoesOnOverARestart: Redis restarts, once with its data and once without, and the stream goes on, whose sums are those of the receiver.
func TestStreamGoesOnOverARestart(t *testing.T) {
	const rate, jobs = 200, 600
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	s := start(t, server, harness.Plan{Rate: rate, Dispatchers: 2})
	h := harness.ReadStream(t, s.OpsOf[0])
	tells := func() bool {
		_, _, processes, seconds, _ := h.Get()
		return processes == 3 && seconds >= 9
	}
	harness.Await(t, 20*time.Second, "all processes tell each second", tells)
	s.Post("before", jobs)
	s.AwaitDelivered(30 * time.Second)
	server.Kill()
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	s.Post("after", jobs)
	r := s.AwaitDelivered(30 * time.Second)
	harness.Report(t, rate, r)
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	harness.Await(t, 20*time.Second, "the stream tells all of it", func() bool {
		sum, _, processes, _, _ := h.Get()
		return sum.Departed == 2*jobs && sum.Arrived == 2*jobs && processes == 3
	})
	if err := server.Client().FlushAll(t.Context()).Err(); err != nil { // its own server
		t.Fatal(err)
	}
	s.Post("anew", jobs)
	s.AwaitDelivered(30 * time.Second)
	harness.Await(t, 20*time.Second, "the stream goes on over lost data", func() bool {
		sum, _, processes, _, lost := h.Get()
		t.Logf("%+v, %d processes, lost %q", sum, processes, lost)
		return sum.Departed == 3*jobs && processes == 3
	})
}

// TestStreamOfOtherClocks: the clocks of all processes are ten minutes off that of Redis, either way. The stream and the history have every departure, and the
// fleet has no process that looks dead.
func TestStreamOfOtherClocks(t *testing.T) {
	const rate, jobs = 200, 600
	for _, offset := range []time.Duration{-10 * time.Minute, 10 * time.Minute} {
		t.Run(offset.String(), func(t *testing.T) {
			server, clock := harness.StartMovable(t)
			clock.Set(offset)
			s := start(t, server, harness.Plan{Rate: rate, Dispatchers: 2})
			h := harness.ReadStream(t, s.OpsOf[0])
			harness.Await(t, 20*time.Second, "all processes tell each second", func() bool {
				_, _, processes, seconds, _ := h.Get()
				return processes == 3 && seconds >= 9
			})
			s.Post("off", jobs)
			r := s.AwaitDelivered(30 * time.Second)
			harness.Report(t, rate, r)
			if err := r.Err(); err != nil {
				t.Fatal(err)
			}
			harness.Await(t, 20*time.Second, "the stream tells all of it", func() bool {
				sum, binned, processes, _, lost := h.Get()
				return sum.Departed == jobs && sum.Arrived == jobs && binned == jobs && processes == 3 && lost == ""
			})
			harness.Await(t, 20*time.Second, "the history has all of it", func() bool {
				points, err := fleet.NewView(server.Client(), 0).History(t.Context(), harness.BucketName)
				if err != nil {
					t.Fatal(err)
				}
				sum := int64(0)
				for _, p := range points {
					sum += p.Departed
				}
				return sum == jobs
			})
		})
	}
}

// TestKilledProcessLosesASecond: what a dispatcher counted that is killed under load is missing in the stream for as long as it told nothing: a second, with its
// jitter and the reading of the stream, while somebody looks.
func TestKilledProcessLosesASecond(t *testing.T) {
	const rate, jobs = 200, 3000
	s := start(t, redistest.Start(t), harness.Plan{Rate: rate, Dispatchers: 2, Lease: 3 * time.Second})
	h := harness.ReadStream(t, s.OpsOf[0])
	harness.Await(t, 20*time.Second, "all processes tell each second", func() bool {
		_, _, processes, seconds, _ := h.Get()
		return processes == 3 && seconds >= 9
	})
	s.Post("killed", jobs)
	harness.Await(t, 10*time.Second, "deliveries go on", func() bool { return s.History.Check().Delivered > jobs/4 })
	s.Dispatchers[1].Kill()
	killed := time.Now()
	harness.Await(t, 20*time.Second, "the killed process is told of", func() bool {
		_, _, _, _, lost := h.Get()
		return lost != ""
	})
	t.Logf("it left the fleet after %s", time.Since(killed).Round(100*time.Millisecond))
	r := s.AwaitDelivered(40 * time.Second)
	harness.Report(t, rate, r)
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	const most = rate * 6 / 5 // all departures of 1.2 s, of which the other dispatcher had a share
	harness.Await(t, 20*time.Second, "the stream tells all but those", func() bool {
		sum, _, _, _, _ := h.Get()
		return sum.Departed >= jobs-most
	})
	sum, _, _, _, _ := h.Get()
	t.Logf("%d departures are in the stream, of %d", sum.Departed, jobs)
}
