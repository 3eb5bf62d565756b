package test

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
)

// TestSentinelFailover is P6: the master dies under load, and where the long measurements are asked for again while a
// sentinel hangs. It goes on soon after the sentinels have made a new one.
func TestSentinelFailover(t *testing.T) {
	besideOthers(t)
	const rate = 100
	quietly(t, func(t *testing.T, stall *stallWatch) (slow string) {
		trio := redistest.StartSentinel(t, "--appendonly", "yes")
		s := start(t, trio.Servers[0], plan{rate: rate, dispatchers: 2, lease: 5 * time.Second, redisURL: trio.URL()})
		s.post("first", 3*rate)
		load := s.load("s", rate)
		kills := []int{-1}
		if redistest.Soak {
			kills = []int{-1, 0} // 0: which one a client asks is not known, but it lists them in this order
		}
		for _, hangs := range kills {
			s.awaitMore(20*time.Second, rate, "deliveries go on before the kill")
			old := trio.Master(t)
			if hangs >= 0 {
				trio.Sentinels[hangs].Stop()
			}
			killed := time.Now()
			old.Kill()
			trio.AwaitFailover(t, old)
			elected := time.Since(killed)
			resumed := s.awaitMore(4*sentinelResume, 3, "deliveries go on after the failover")
			t.Logf("sentinel that hangs: %d; a new master after %s, deliveries %s after it", hangs, elected.Round(time.Millisecond), resumed.Round(time.Millisecond))
			if resumed > sentinelResume+stall.cost() {
				slow = fmt.Sprintf("resumed %s after the failover, want at most %s", resumed, sentinelResume)
			}
			if hangs >= 0 {
				trio.Sentinels[hangs].Cont()
				continue
			}
			if redistest.Soak {
				trio.AwaitReady(t) // with one replica left
			}
		}
		r, fault := s.judge(stall, rate, load.end(), len(kills))
		t.Logf("%d lost, %d came twice", len(r.Lost), len(r.Duplicated))
		return cmp.Or(fault, slow)
	})
}
