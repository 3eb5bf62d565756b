package harness

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
)

// Process is a program that runs until the test ends.
type Process struct {
	Cmd    *exec.Cmd
	Output *LockedBuffer
	Done   chan struct{}
}

// Run starts a program and waits until it is ready.
func Run(t *testing.T, url, name string, args ...string) *Process {
	t.Helper()
	return RunCommand(t, url, exec.Command(filepath.Join(Programs, name), args...))
}

// RunCommand starts a program by a command, such as one that puts it into a namespace of its own, and waits until it is ready.
func RunCommand(t *testing.T, url string, cmd *exec.Cmd) *Process {
	t.Helper()
	name := strings.Join(cmd.Args, " ")
	p := &Process{Cmd: cmd, Output: &LockedBuffer{}, Done: make(chan struct{})}
	p.Cmd.Stdout, p.Cmd.Stderr = p.Output, p.Output
	if err := p.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.Done)
		_ = p.Cmd.Wait() // how it ended is in its output
	}()
	t.Cleanup(func() {
		_ = p.Cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.Done:
		case <-time.After(Patience * 10 * time.Second):
			p.Kill()
			t.Errorf("%s did not stop within %s of SIGTERM", name, Patience*10*time.Second)
		}
		if t.Failed() {
			t.Logf("%s:\n%s", name, p.Output)
		}
	})
	Await(t, 10*time.Second, name+" is ready", func() bool {
		select {
		case <-p.Done:
			t.Fatalf("%s ended before it was ready", name) // its output follows
		default:
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
		if err != nil {
			return false
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	return p
}

// Stop ends the process as a service manager does, and waits for it.
func (p *Process) Stop(t *testing.T) {
	t.Helper()
	p.Signal(t, syscall.SIGTERM)
	select {
	case <-p.Done:
	case <-time.After(Patience * 10 * time.Second):
		t.Fatalf("the process did not stop within %s of SIGTERM", Patience*10*time.Second)
	}
}

// Signal sends the process a signal.
func (p *Process) Signal(t *testing.T, signal os.Signal) {
	t.Helper()
	if err := p.Cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

// Kill ends the process as kill -9 does, and waits for it.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill()
	<-p.Done
}

// Patience is the factor by which a test waits longer than on an idle machine before it gives up. It is no bound of what is promised.
const Patience = 3

// BesideOthers lets a test run in parallel with others. A soak, whose times are figures, runs alone.
func BesideOthers(t *testing.T) {
	t.Helper()
	if !redistest.Soak {
		t.Parallel()
	}
}

// Await polls until something is true.
func Await(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(Patience * limit)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %s: %s", Patience*limit, what)
		}
	}
}

// LockedBuffer keeps the output of a process.
type LockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *LockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *LockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
