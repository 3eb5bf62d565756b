//go:build soak

package test

import (
	"cmp"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
)

// TestStreamsDisturbNothing: with a hundred streams open the stream of jobs is as even as without one, and each of them is told all of it.
func TestStreamsDisturbNothing(t *testing.T) {
	const rate, jobs, viewers = 500, 5000, 100
	for name, streams := range map[string]int{"none": 0, "100": viewers} {
		t.Run(name, func(t *testing.T) {
			quietly(t, func(t *testing.T, stall *stallWatch) string {
				s := start(t, redistest.Start(t), plan{rate: rate, dispatchers: 2})
				var heard []*streamed
				for i := range streams {
					heard = append(heard, hear(t, s.opsOf[i%len(s.opsOf)]))
				}
				await(t, 20*time.Second, "all processes tell each second", func() bool {
					for _, h := range heard {
						if _, _, processes, seconds, _ := h.get(); processes < 3 || seconds < 9 {
							return false
						}
					}
					return true
				})
				s.post("watched", jobs)
				r := s.awaitDelivered(30 * time.Second)
				report(t, rate, r)
				if r.Err() != nil {
					t.Fatal(r.Err())
				}
				await(t, 20*time.Second, "all streams tell all", func() bool {
					for _, h := range heard {
						if sum, _, _, _, _ := h.get(); sum.Departed != jobs {
							return false
						}
					}
					return true
				})
				return cmp.Or(stall.crowded(r.MostIn, rate, steady, time.Second, 100*time.Millisecond), stall.slow(r.Rate, rate, jobs, .98))
			})
		})
	}
}
