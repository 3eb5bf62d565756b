//go:build soak

package soak

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/faultproxy"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// TestEvenStream: what goes in as fast as it can comes out at the rate.
func TestEvenStream(t *testing.T) {
	const rate, jobs = 200, 2000
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		s := start(t, redistest.Start(t), harness.Plan{Rate: rate, Dispatchers: 2})
		s.Post("even", jobs)
		r := s.AwaitDelivered(30 * time.Second)
		harness.Report(t, rate, r)
		switch {
		case r.Err() != nil:
			t.Fatal(r.Err())
		case r.Extra > 0:
			return fmt.Sprintf("%d jobs came twice without a crash: %v", len(r.Duplicated), r.Duplicated)
		}
		return cmp.Or(stall.Crowded(r.MostIn, rate, harness.Steady, time.Second, 100*time.Millisecond), stall.Slow(r.Rate, rate, jobs, .98))
	})
}

// TestSlowNetwork: a far Redis costs no slots, and makes no bunch.
func TestSlowNetwork(t *testing.T) {
	const rate, jobs = 1000, 10_000
	for _, c := range []struct {
		delay       time.Duration
		dispatchers int
	}{{10 * time.Millisecond, 1}, {10 * time.Millisecond, 4}, {50 * time.Millisecond, 1}, {50 * time.Millisecond, 4}} {
		t.Run(fmt.Sprintf("%s_%d", c.delay, c.dispatchers), func(t *testing.T) {
			harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
				server := redistest.Start(t)
				proxy, err := faultproxy.New(server.Addr())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = proxy.Close() })
				proxy.SetDelay(c.delay)
				s := start(t, server, harness.Plan{Rate: rate, Dispatchers: c.dispatchers, RedisURL: "redis://" + proxy.Addr()})
				s.Post("far", jobs)
				r := s.AwaitDelivered(40 * time.Second)
				harness.Report(t, rate, r)
				switch {
				case r.Err() != nil:
					t.Fatal(r.Err())
				case r.Extra > 0:
					return fmt.Sprintf("%d jobs came twice without a crash", len(r.Duplicated))
				}
				return cmp.Or(stall.Crowded(r.MostIn, rate, harness.Steady, time.Second, 100*time.Millisecond), stall.Slow(r.Rate, rate, jobs, .98))
			})
		})
	}
}
