package test

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// TestSentinelFailover is P6: the master dies under load, and where the long measurements are asked for again while a
// sentinel hangs. It goes on soon after the sentinels have made a new one.
func TestSentinelFailover(t *testing.T) {
	harness.BesideOthers(t)
	const rate = 100
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) (slow string) {
		trio := redistest.StartSentinel(t, "--appendonly", "yes")
		s := start(t, trio.Servers[0], harness.Plan{Rate: rate, Dispatchers: 2, Lease: 5 * time.Second, RedisURL: trio.URL()})
		s.Post("first", 3*rate)
		load := s.Load("s", rate)
		kills := []int{-1}
		if redistest.Soak {
			kills = []int{-1, 0} // 0: which one a client asks is not known, but it lists them in this order
		}
		for _, hangs := range kills {
			s.AwaitMore(20*time.Second, rate, "deliveries go on before the kill")
			old := trio.Master(t)
			if hangs >= 0 {
				trio.Sentinels[hangs].Stop()
			}
			killed := time.Now()
			old.Kill()
			trio.AwaitFailover(t, old)
			elected := time.Since(killed)
			resumed := s.AwaitMore(4*harness.SentinelResume, 3, "deliveries go on after the failover")
			t.Logf("sentinel that hangs: %d; a new master after %s, deliveries %s after it", hangs, elected.Round(time.Millisecond), resumed.Round(time.Millisecond))
			if resumed > harness.SentinelResume+stall.Cost() {
				slow = fmt.Sprintf("resumed %s after the failover, want at most %s", resumed, harness.SentinelResume)
			}
			if hangs >= 0 {
				trio.Sentinels[hangs].Cont()
				continue
			}
			if redistest.Soak {
				trio.AwaitReady(t) // with one replica left
			}
		}
		r, fault := s.Judge(stall, rate, load.End(), len(kills))
		t.Logf("%d lost, %d came twice", len(r.Lost), len(r.Duplicated))
		return cmp.Or(fault, slow)
	})
}
