//go:build soak

package test

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
)

// TestRedriveWaits: 600 dead letters go through a bucket of 60 places while producers go on. The command waits for places, is stopped
// half way and run again. Each job arrives once more and no oftener, at the bucket's rate, and no producer is refused.
func TestRedriveWaits(t *testing.T) {
	const rate, capacity, letters = 200, 60, 600
	quietly(t, func(t *testing.T, stall *stallWatch) string {
		var a arrivalLog
		var works atomic.Bool
		s := start(t, redistest.Start(t), plan{
			rate: rate, dispatchers: 2, capacity: capacity, bucket: "dead_capacity = 10000",
			respond: func(w http.ResponseWriter, r *http.Request, id string, attempt int) {
				if !works.Load() {
					w.WriteHeader(http.StatusGone)
					return
				}
				a.respond(w, r, id, attempt)
			},
		})
		for i := range letters {
			id := fmt.Sprint("dead-", i)
			await(t, 10*time.Second, "there is a place", func() bool { return s.send(id) == http.StatusAccepted })
		}
		dead := func() int64 { return s.inspector.ZCard(t.Context(), s.key("dead")).Val() }
		await(t, 10*time.Second, "all are dead", func() bool { return dead() == letters })
		works.Store(true)
		began := time.Now()
		end := s.pour()
		redrive := exec.CommandContext(t.Context(), filepath.Join(programs, "dispatcher"), "dead", "redrive", bucketName, "--all", "--config", s.config)
		redrive.Stderr = os.Stderr
		if err := redrive.Start(); err != nil {
			t.Fatal(err)
		}
		await(t, 10*time.Second, "half of them are redriven", func() bool { return dead() < letters/2 })
		if err := redrive.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if _, err := redrive.Process.Wait(); err != nil {
			t.Fatal(err)
		}
		left := dead()
		moved := s.deadCount("moved", "redrive", "--all")
		took := time.Since(began)
		await(t, 10*time.Second, "all have arrived", func() bool { return len(a.of("dead")) == letters })
		taken := end() // it fails where one is refused
		await(t, 10*time.Second, "everything is settled", func() bool { return s.unfinished() == 0 })
		all := a.all()
		share := float64(len(a.of("dead"))) / took.Seconds()
		t.Logf("%d were left at the stop, %d were moved then; %d and %d new ones in %s: the redriven ones at %.0f/s of %d/s", left, moved, letters, taken,
			took.Round(time.Millisecond), share, rate)
		if left == 0 || int64(moved) != left || len(all) != letters+taken {
			t.Fatalf("%d arrived of %d; %d were left and %d moved", len(all), letters+taken, left, moved)
		}
		if share < rate/3 {
			return fmt.Sprintf("the redriven ones left at %.0f/s of %d/s", share, rate)
		}
		return stall.crowded(func(window time.Duration) int { return mostOf(all, window) }, rate, spread, time.Second)
	})
}
