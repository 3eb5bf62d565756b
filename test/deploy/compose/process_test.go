package compose

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
)

// patience is far above what a start or a delivery takes.
const patience = 2 * time.Minute

// process is a service that runs.
type process struct {
	t       *testing.T
	service *types.ServiceConfig
	name    string
	address string
	root    string // of its files
	inside  func(text string) string
	env     []string

	cmd   *exec.Cmd
	ended chan struct{}
	err   error // of the end
	wrote chan struct{}

	mu  sync.Mutex
	log bytes.Buffer
}

// mount copies a file or a folder to where the process finds it, with its paths and addresses.
func (p *process) mount(source, at string) {
	p.t.Helper()
	err := filepath.WalkDir(source, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(source, path)
		if err := os.MkdirAll(filepath.Dir(filepath.Join(at, name)), 0o755); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(at, name), []byte(p.inside(string(text))), 0o644)
	})
	if err != nil {
		p.t.Fatalf("%s: %v", p.name, err)
	}
}

func (p *process) command(words []string) *exec.Cmd {
	args := make([]string, len(words))
	for i, word := range words {
		args[i] = p.inside(strings.ReplaceAll(word, "$$", "$")) // of the check; a command has it done
	}
	// The program is looked for in the path of the process, as a container does.
	cmd := exec.CommandContext(p.t.Context(), "/usr/bin/env", args...)
	cmd.Dir, cmd.Env = p.root, p.env
	return cmd
}

func (p *process) start() {
	p.t.Helper()
	p.cmd = p.command(p.service.Command)
	p.cmd.Stdout, p.cmd.Stderr = p, p
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = patience
	if err := p.cmd.Start(); err != nil {
		p.t.Fatalf("%s: %v", p.name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	p.t.Cleanup(func() {
		<-p.ended
		if p.t.Failed() {
			p.t.Logf("%s: %v\n%s", p.name, p.err, p.said())
		}
	})
}

func (p *process) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case p.wrote <- struct{}{}:
	default:
	}
	return p.log.Write(text)
}

func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// awaitText waits until the process has written a text.
func (p *process) awaitText(text string) {
	p.t.Helper()
	late := time.After(patience)
	for !strings.Contains(p.said(), text) {
		select {
		case <-p.wrote:
		case <-p.ended:
			p.t.Fatalf("%s ended before it said %s", p.name, text)
		case <-late:
			p.t.Fatalf("%s does not say %s", p.name, text)
		}
	}
}

// awaitHealthy runs the check of the service until it succeeds.
func (p *process) awaitHealthy() {
	p.t.Helper()
	test := []string(p.service.HealthCheck.Test)
	switch test[0] {
	case "CMD":
		test = test[1:]
	case "CMD-SHELL":
		test = []string{"sh", "-c", test[1]}
	default:
		p.t.Fatalf("%s: a check of the kind %s", p.name, test[0])
	}
	for late := time.Now().Add(patience); ; {
		out, err := p.command(test).CombinedOutput()
		if err == nil {
			return
		}
		select {
		case <-p.ended:
			p.t.Fatalf("%s ended: %v", p.name, p.err)
		default:
		}
		if time.Now().After(late) {
			p.t.Fatalf("%s is not healthy: %v\n%s", p.name, err, out)
		}
	}
}

// awaitEnd waits for the good end of a process that is to end.
func (p *process) awaitEnd() {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("%s does not end", p.name)
	}
	if p.err != nil {
		p.t.Fatalf("%s: %v", p.name, p.err)
	}
}

// stop stops the process as Compose does, and wants a good end.
func (p *process) stop() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Error(err)
	}
	p.awaitEnd()
}

// kill ends the process as a crash does.
func (p *process) kill() {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Fatal(err)
	}
	<-p.ended
}
