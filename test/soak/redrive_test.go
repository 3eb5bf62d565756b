//go:build soak

package soak

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// TestRedriveWaits: 600 dead letters go through a bucket of 60 places while producers go on. The command waits for places, is stopped
// half way and run again. Each job arrives once more and no oftener, at the bucket's rate, and no producer is refused.
func TestRedriveWaits(t *testing.T) {
	const rate, capacity, letters = 200, 60, 600
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		var a harness.ArrivalLog
		var works atomic.Bool
		s := start(t, redistest.Start(t), harness.Plan{
			Rate: rate, Dispatchers: 2, Capacity: capacity, Bucket: "dead_capacity = 10000",
			Respond: func(w http.ResponseWriter, r *http.Request, id string, attempt int) {
				if !works.Load() {
					w.WriteHeader(http.StatusGone)
					return
				}
				a.Respond(w, r, id, attempt)
			},
		})
		for i := range letters {
			id := fmt.Sprint("dead-", i)
			harness.Await(t, 10*time.Second, "there is a place", func() bool { return s.Send(id) == http.StatusAccepted })
		}
		dead := func() int64 { return s.Inspector.ZCard(t.Context(), s.Key("dead")).Val() }
		harness.Await(t, 10*time.Second, "all are dead", func() bool { return dead() == letters })
		works.Store(true)
		began := time.Now()
		end := s.pour()
		redrive := exec.CommandContext(t.Context(), filepath.Join(harness.Programs, "dispatcher"), "dead", "redrive", harness.BucketName, "--all", "--config", s.Config)
		redrive.Stderr = os.Stderr
		if err := redrive.Start(); err != nil {
			t.Fatal(err)
		}
		harness.Await(t, 10*time.Second, "half of them are redriven", func() bool { return dead() < letters/2 })
		if err := redrive.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if _, err := redrive.Process.Wait(); err != nil {
			t.Fatal(err)
		}
		left := dead()
		moved := s.deadCount("moved", "redrive", "--all")
		took := time.Since(began)
		harness.Await(t, 10*time.Second, "all have arrived", func() bool { return len(a.Of("dead")) == letters })
		taken := end() // it fails where one is refused
		harness.Await(t, 10*time.Second, "everything is settled", func() bool { return s.Unfinished() == 0 })
		all := a.All()
		share := float64(len(a.Of("dead"))) / took.Seconds()
		t.Logf("%d were left at the stop, %d were moved then; %d and %d new ones in %s: the redriven ones at %.0f/s of %d/s", left, moved, letters, taken,
			took.Round(time.Millisecond), share, rate)
		if left == 0 || int64(moved) != left || len(all) != letters+taken {
			t.Fatalf("%d arrived of %d; %d were left and %d moved", len(all), letters+taken, left, moved)
		}
		if share < rate/3 {
			return fmt.Sprintf("the redriven ones left at %.0f/s of %d/s", share, rate)
		}
		return stall.Crowded(func(window time.Duration) int { return harness.MostOf(all, window) }, rate, harness.Spread, time.Second)
	})
}
