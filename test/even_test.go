//go:build soak

package test

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/faultproxy"
	"github.com/tundish-io/tundish/internal/redistest"
)

// TestEvenStream: what goes in as fast as it can comes out at the rate.
func TestEvenStream(t *testing.T) {
	const rate, jobs = 200, 2000
	quietly(t, func(t *testing.T, stall *stallWatch) string {
		s := start(t, redistest.Start(t), plan{rate: rate, dispatchers: 2})
		s.post("even", jobs)
		r := s.awaitDelivered(30 * time.Second)
		report(t, rate, r)
		switch {
		case r.Err() != nil:
			t.Fatal(r.Err())
		case r.Extra > 0:
			return fmt.Sprintf("%d jobs came twice without a crash: %v", len(r.Duplicated), r.Duplicated)
		}
		return cmp.Or(stall.crowded(r.MostIn, rate, steady, time.Second, 100*time.Millisecond), stall.slow(r.Rate, rate, jobs, .98))
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
			quietly(t, func(t *testing.T, stall *stallWatch) string {
				server := redistest.Start(t)
				proxy, err := faultproxy.New(server.Addr())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = proxy.Close() })
				proxy.SetDelay(c.delay)
				s := start(t, server, plan{rate: rate, dispatchers: c.dispatchers, redisURL: "redis://" + proxy.Addr()})
				s.post("far", jobs)
				r := s.awaitDelivered(40 * time.Second)
				report(t, rate, r)
				switch {
				case r.Err() != nil:
					t.Fatal(r.Err())
				case r.Extra > 0:
					return fmt.Sprintf("%d jobs came twice without a crash", len(r.Duplicated))
				}
				return cmp.Or(stall.crowded(r.MostIn, rate, steady, time.Second, 100*time.Millisecond), stall.slow(r.Rate, rate, jobs, .98))
			})
		})
	}
}
