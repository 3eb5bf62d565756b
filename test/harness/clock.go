package harness

import (
	_ "embed"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
)

// Movable is the clock of a program that a test sets.
type Movable struct {
	t    *testing.T
	File *os.File
}

//go:embed testdata/clock.c
var clockSource []byte

// BuildClock builds a library that a program loads before its own, as LD_PRELOAD. The clock sets the time of that program.
func BuildClock(t *testing.T) (library string, clock *Movable) {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		Skip(t, "this test sets the clock of a program by a small library in C and needs gcc (apt-get install gcc)")
	}
	dir := t.TempDir()
	library = filepath.Join(dir, "clock.so")
	source := filepath.Join(dir, "clock.c")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "gcc", "-shared", "-fPIC", "-O1", "-o", library, source)
	if out, err := build.CombinedOutput(); err != nil {
		Skip(t, "this test sets the clock of a program by a small library in C, which gcc does not build here: %v\n%s", err, out)
	}
	file, err := os.Create(filepath.Join(dir, "offset"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	clock = &Movable{t, file}
	clock.Set(0)
	return library, clock
}

// StartMovable starts a Redis whose clock can be set.
func StartMovable(t *testing.T) (*redistest.Server, *Movable) {
	t.Helper()
	library, clock := BuildClock(t)
	server := redistest.StartWith(t, []string{"LD_PRELOAD=" + library, "CLOCK_OFFSET=" + clock.File.Name()})
	clock.Set(time.Hour)
	now, err := server.Client().Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	if time.Until(now) < 30*time.Minute {
		Skip(t, "this test sets the clock of Redis by a preloaded library, which this system does not load")
	}
	clock.Set(0)
	return server, clock
}

// Set sets the clock of the program to the machine's clock plus offset.
func (m *Movable) Set(offset time.Duration) {
	m.t.Helper()
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], uint64(offset.Microseconds()))
	if _, err := m.File.WriteAt(b[:], 0); err != nil {
		m.t.Fatal(err)
	}
}
