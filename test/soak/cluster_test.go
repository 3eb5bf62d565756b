//go:build soak

package soak

import (
	"cmp"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// kills is how often a master dies: ten times where figures are asked for, as `make
// system` does, else three times, for each takes ten seconds; or as often as
// TEST_KILLS in the environment of the test says.
func kills(t *testing.T) int {
	t.Helper()
	text := os.Getenv("TEST_KILLS")
	switch {
	case text == "" && testing.Verbose():
		return 10
	case text == "":
		return 3
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestClusterMasterDies: under load the master that has the bucket is killed,
// again and again. What was answered 202 arrives, nothing is above the rate,
// and it goes on soon after the election.
func TestClusterMasterDies(t *testing.T) {
	const rate = 100
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		c := redistest.StartCluster(t, "--appendonly", "yes",
			"--cluster-replica-validity-factor", "0") // also where the machine stood still for long
		s := start(t, c.Nodes[0], harness.Plan{Rate: rate, Dispatchers: 2, Lease: 5 * time.Second, RedisURL: c.URL()})
		s.Post("first", 3*rate) // a backlog, so that it is the pace that holds
		load := s.Load("c", rate)
		var slowest time.Duration
		for kill := range kills(t) {
			s.AwaitMore(20*time.Second, rate, "deliveries go on before a kill")
			killed := time.Now()
			old := c.KillMaster(t, harness.BusyKey)
			c.AwaitFailover(t, harness.BusyKey, old)
			elected := time.Since(killed)
			resumed := s.AwaitMore(2*harness.ClusterResume, 3, "deliveries go on after the election")
			t.Logf("kill %d: a new master after %s, deliveries %s after it", kill+1, elected.Round(time.Millisecond), resumed.Round(time.Millisecond))
			slowest = max(slowest, resumed)
			if err := old.Restart(); err != nil {
				t.Fatal(err)
			}
			c.AwaitReady(t)
		}
		r, fault := s.Judge(stall, rate, load.End(), kills(t))
		t.Logf("%d kills: resumed at most %s after the election; %d lost, %d came twice", kills(t), slowest.Round(time.Millisecond), len(r.Lost), len(r.Duplicated))
		if slowest > harness.ClusterResume {
			return fmt.Sprintf("resumed %s after the election, want at most %s", slowest, harness.ClusterResume)
		}
		return fault
	})
}

// TestClusterReshards: while the slot of a bucket is on its way to another node,
// nothing is sent and the API answers 503; afterwards it goes on.
func TestClusterReshards(t *testing.T) {
	const rate = 100
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) (fault string) {
		c := redistest.StartCluster(t)
		s := start(t, c.Nodes[0], harness.Plan{Rate: rate, Dispatchers: 2, Lease: 5 * time.Second, RedisURL: c.URL()})
		s.Post("first", 4*rate)
		load := s.Load("r", rate)
		s.AwaitMore(10*time.Second, rate, "deliveries go on before the migration")

		m := c.Migrate(t, harness.BusyKey)
		m.Step(t, 2) // some keys here, some there
		harness.Await(t, 5*time.Second, "the API refuses", func() bool { return s.Send("probe") == http.StatusServiceUnavailable })
		// What was claimed before may still go out.
		began, seen, since := time.Now(), -1, time.Now()
		harness.Await(t, 10*time.Second, "nothing is sent for a second", func() bool {
			if n := s.History.Check().Delivered; n != seen {
				seen, since = n, time.Now()
			}
			return time.Since(since) >= time.Second
		})
		t.Logf("the last delivery came %s after the API refused", since.Sub(began).Round(time.Millisecond))
		if status := s.Send("probe"); status != http.StatusServiceUnavailable {
			t.Errorf("while the slot migrates enqueue answers %d, want 503", status)
		}
		if limit := time.Second; since.Sub(began) > limit {
			fault = fmt.Sprintf("deliveries until %s after the API refused, want at most %s", since.Sub(began), limit)
		}
		m.End(t)
		resumed := s.AwaitMore(2*harness.ClusterResume, 3, "deliveries go on after the migration")
		t.Logf("deliveries went on %s after the migration's end", resumed.Round(time.Millisecond))
		if resumed > harness.ClusterResume {
			fault = fmt.Sprintf("resumed %s after the migration, want at most %s", resumed, harness.ClusterResume)
		}
		harness.Await(t, 5*time.Second, "the API takes jobs", func() bool { return s.Send("probe") == http.StatusAccepted })
		s.AwaitMore(10*time.Second, rate, "deliveries go on at the new node")

		// A whole migration under load, as a tool does it.
		before := c.MasterOf(t, harness.BusyKey)
		c.Reshard(t, harness.BusyKey)
		if c.MasterOf(t, harness.BusyKey) == before {
			t.Error("the slot has not moved")
		}
		if again := s.AwaitMore(2*harness.ClusterResume, 3, "deliveries go on after the second migration"); again > harness.ClusterResume {
			fault = fmt.Sprintf("resumed %s after the second migration, want at most %s", again, harness.ClusterResume)
		}
		_, crowded := s.Judge(stall, rate, load.End(), 0) // none may be lost: no master died
		return cmp.Or(crowded, fault)
	})
}
