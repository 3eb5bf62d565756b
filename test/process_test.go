package test

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

// process is a program that runs until the test ends.
type process struct {
	cmd    *exec.Cmd
	output *lockedBuffer
	done   chan struct{}
}

// run starts a program and waits until it is ready.
func run(t *testing.T, url, name string, args ...string) *process {
	t.Helper()
	return runCommand(t, url, exec.Command(filepath.Join(programs, name), args...))
}

// runCommand starts a program as a command says, such as one that puts it into a namespace of its own, and waits until it is ready.
func runCommand(t *testing.T, url string, cmd *exec.Cmd) *process {
	t.Helper()
	name := strings.Join(cmd.Args, " ")
	p := &process{cmd: cmd, output: &lockedBuffer{}, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // how it ended is in its output
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.done:
		case <-time.After(patience * 10 * time.Second):
			p.kill()
			t.Errorf("%s did not stop within %s of SIGTERM", name, patience*10*time.Second)
		}
		if t.Failed() {
			t.Logf("%s:\n%s", name, p.output)
		}
	})
	await(t, 10*time.Second, name+" is ready", func() bool {
		select {
		case <-p.done:
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

// stop ends the process as a service manager does, and waits for it.
func (p *process) stop(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(patience * 10 * time.Second):
		t.Fatalf("the process did not stop within %s of SIGTERM", patience*10*time.Second)
	}
}

func (p *process) signal(t *testing.T, signal os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// patience is how much longer than on a machine that has nothing else to do
// something may take until a test gives up. It is no bound of what is promised.
const patience = 3

// besideOthers lets a test run beside others, but in a soak, where its times are figures, alone.
func besideOthers(t *testing.T) {
	t.Helper()
	if !redistest.Soak {
		t.Parallel()
	}
}

// await polls until something is true.
func await(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience * limit)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %s: %s", patience*limit, what)
		}
	}
}

// lockedBuffer keeps the output of a process.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
