package test

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
)

// movable is the clock of a program that a test sets.
type movable struct {
	t    *testing.T
	file *os.File
}

// buildClock builds a library that a program loads before its own, as LD_PRELOAD. The clock sets the time of that program.
func buildClock(t *testing.T) (library string, clock *movable) {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		skip(t, "this test sets the clock of a program by a small library in C and needs gcc (apt-get install gcc)")
	}
	dir := t.TempDir()
	library = filepath.Join(dir, "clock.so")
	build := exec.CommandContext(t.Context(), "gcc", "-shared", "-fPIC", "-O1", "-o", library, "testdata/clock.c")
	if out, err := build.CombinedOutput(); err != nil {
		skip(t, "this test sets the clock of a program by a small library in C, which gcc does not build here: %v\n%s", err, out)
	}
	file, err := os.Create(filepath.Join(dir, "offset"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	clock = &movable{t, file}
	clock.set(0)
	return library, clock
}

// startMovable starts a Redis whose clock can be set.
func startMovable(t *testing.T) (*redistest.Server, *movable) {
	t.Helper()
	library, clock := buildClock(t)
	server := redistest.StartWith(t, []string{"LD_PRELOAD=" + library, "CLOCK_OFFSET=" + clock.file.Name()})
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

// set sets the clock of the program to that of the machine and offset.
func (m *movable) set(offset time.Duration) {
	m.t.Helper()
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], uint64(offset.Microseconds()))
	if _, err := m.file.WriteAt(b[:], 0); err != nil {
		m.t.Fatal(err)
	}
}

// TestClockSteps is P2 where the clock of Redis is set under load, by seconds and by an hour, forwards and back. By
// the clock of the machine no more slots are given than those that the rate allows, and with each step those of one
// horizon, which were given already and are void where it stepped forwards; nothing is lost, and no
// lease counts as run out.
func TestClockSteps(t *testing.T) {
	besideOthers(t)
	const rate, jobs, hold, horizon = 200, 1000, 600 * time.Millisecond, 80 * time.Millisecond
	steps := []struct {
		delivered int // when it is made
		offset    time.Duration
	}{
		// A patrol, every 2 s, comes after a step forwards.
		{50, 5 * time.Second}, {500, 0}, {600, time.Hour}, {800, 0},
	}
	quietly(t, func(t *testing.T, stall *stallWatch) string {
		server, clock := startMovable(t)
		watched := monitor(t, server)
		s := start(t, server, plan{rate: rate, dispatchers: 2, lease: 3 * time.Second, hold: hold})
		s.post("step", jobs)
		for _, step := range steps {
			await(t, 20*time.Second, fmt.Sprint(step.delivered, " jobs have arrived"), func() bool {
				return s.history.Check().Delivered >= step.delivered
			})
			clock.set(step.offset)
		}
		r := s.awaitDelivered(30 * time.Second)
		await(t, 20*time.Second, "everything is settled", func() bool { return s.unfinished() == 0 })
		var real slots
		grants, _ := watched.all()
		for _, g := range grants {
			offset, nearest := int64(0), int64(math.MaxInt64)
			for _, step := range steps {
				far := g.at - g.read - step.offset.Microseconds()
				if far = max(far, -far); far < nearest {
					offset, nearest = step.offset.Microseconds(), far
				}
			}
			real = append(real, g.slot-offset)
		}
		slices.Sort(real)
		early := real.early(rate)
		report(t, rate, r)
		t.Logf("%d slots, those of the fullest window are %s ahead of the rate", len(real), early)
		if r.Err() != nil || r.Extra > 0 {
			t.Errorf("%v; came twice: %v", r.Err(), r.Duplicated)
		}
		if most := time.Duration(len(steps))*horizon + spread; early > most {
			t.Errorf("the slots of some window are %s ahead of the rate, want at most %s", early, most)
		}
		return stall.crowded(r.MostIn, rate, spread, time.Second)
	})
}
