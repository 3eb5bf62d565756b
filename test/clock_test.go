//go:build soak

package test

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
)

// movable is the clock of a Redis that a test sets.
type movable struct {
	t    *testing.T
	file *os.File
}

// startMovable starts a Redis whose clock can be set, by a library that the
// server loads before its own.
func startMovable(t *testing.T) (*redistest.Server, *movable) {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		skip(t, "this test sets the clock of Redis by a small library in C and needs gcc (apt-get install gcc)")
	}
	dir := t.TempDir()
	library := filepath.Join(dir, "clock.so")
	build := exec.CommandContext(t.Context(), "gcc", "-shared", "-fPIC", "-O1", "-o", library, "testdata/clock.c")
	if out, err := build.CombinedOutput(); err != nil {
		skip(t, "this test sets the clock of Redis by a small library in C, which gcc does not build here: %v\n%s", err, out)
	}
	file, err := os.Create(filepath.Join(dir, "offset"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	clock := &movable{t, file}
	clock.set(0)
	server := redistest.StartWith(t, []string{"LD_PRELOAD=" + library, "CLOCK_OFFSET=" + file.Name()})
	clock.set(time.Hour)
	now, err := server.Client().Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	if time.Until(now) < 30*time.Minute {
		skip(t, "this test sets the clock of Redis by a preloaded library, which this system does not load")
	}
	clock.set(0)
	return server, clock
}

// set sets the clock of Redis to that of the machine and offset.
func (m *movable) set(offset time.Duration) {
	m.t.Helper()
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], uint64(offset.Microseconds()))
	if _, err := m.file.WriteAt(b[:], 0); err != nil {
		m.t.Fatal(err)
	}
}

// arrivals notes when requests came.
type arrivals struct {
	mu    sync.Mutex
	times []time.Time
}

func (a *arrivals) note() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.times = append(a.times, time.Now())
}

// longestPause is the longest time between two arrivals.
func (a *arrivals) longestPause() (pause time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	slices.SortFunc(a.times, time.Time.Compare)
	for i := 1; i < len(a.times); i++ {
		pause = max(pause, a.times[i].Sub(a.times[i-1]))
	}
	return pause
}

// TestClockSteps: the clock of Redis is set under load, by seconds and by an
// hour, forwards and back. The stream stays even, goes on within a second, and
// no lease counts as run out.
func TestClockSteps(t *testing.T) {
	const rate, hold = 200, 600 * time.Millisecond
	steps := []struct {
		delivered int // when it is made
		offset    time.Duration
	}{
		// A patrol, every 2 s, comes after a step forwards.
		{100, 5 * time.Second}, {550, 0}, {750, time.Hour}, {1200, 0},
	}
	const jobs = 1500
	quietly(t, func(t *testing.T, stall *stallWatch) string {
		server, clock := startMovable(t)
		var came arrivals
		s := start(t, server, plan{rate: rate, dispatchers: 2, lease: 3 * time.Second,
			respond: func(_ http.ResponseWriter, r *http.Request, _ string, _ int) {
				came.note()
				select {
				case <-time.After(hold):
				case <-r.Context().Done():
				}
			}})
		s.post("step", jobs)
		for _, step := range steps {
			await(t, 20*time.Second, fmt.Sprint(step.delivered, " jobs have arrived"), func() bool {
				return s.history.Check().Delivered >= step.delivered
			})
			clock.set(step.offset)
		}
		s.awaitDelivered(30 * time.Second)
		await(t, 10*time.Second, "everything is settled", func() bool { return s.unfinished() == 0 })
		r := s.history.Check()
		report(t, rate, r)
		pause := came.longestPause()
		t.Logf("the longest pause: %s", pause)
		switch {
		case r.Err() != nil:
			t.Fatal(r.Err())
		case r.Extra > 0:
			return fmt.Sprintf("%d jobs came twice", len(r.Duplicated))
		case pause > time.Second:
			return fmt.Sprintf("nothing came for %s", pause)
		}
		return stall.crowded(r.MostIn, rate, spread, time.Second)
	})
}
