package compose

import (
	"bytes"
	"context"
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

func (p *process) command(ctx context.Context, words []string) *exec.Cmd {
	args := make([]string, len(words))
	for i, word := range words {
		args[i] = p.inside(strings.ReplaceAll(word, "$$", "$")) // of the check; a command has it done
	}
	// The program is looked for in the path of the process, as a container does.
	cmd := exec.CommandContext(ctx, "/usr/bin/env", args...)
	cmd.Dir, cmd.Env = p.root, p.env
	return cmd
}

func (p *process) start() {
	p.t.Helper()
	p.cmd = p.command(context.WithoutCancel(p.t.Context()), p.service.Command) // end ends it
	p.cmd.Stdout, p.cmd.Stderr = p, p
	if err := p.cmd.Start(); err != nil {
		p.t.Fatalf("%s: %v", p.name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
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
		out, err := p.command(p.t.Context(), test).CombinedOutput()
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

// stop stops the process as Compose does: a signal, and a while later the end of its patience.
func (p *process) stop() {
	select {
	case <-p.ended:
		return
	default:
	}
	grace := 10 * time.Second // of Compose
	if p.service.StopGracePeriod != nil {
		grace = time.Duration(*p.service.StopGracePeriod)
	}
	p.awaitFile()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("%s: %v", p.name, err)
	}
	select {
	case <-p.ended:
	case <-time.After(grace):
		p.t.Errorf("%s does not end in %s", p.name, grace)
		p.kill()
	}
	if p.err != nil {
		p.t.Errorf("the end of %s: %v", p.name, p.err)
	}
}

// kill ends the process as a crash does.
func (p *process) kill() {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Error(err)
	}
	<-p.ended
}

// asOperator reports whether a command of redis-cli, and what follows it, succeeds.
func (p *process) asOperator(command string) bool {
	return p.command(context.WithoutCancel(p.t.Context()), []string{"sh", "-c", "export REDISCLI_AUTH=$REDIS_OPERATOR_PASSWORD; redis-cli " + command}).Run() == nil
}

// awaitFile waits until a Redis that is a replica has written its first file: until then it forgets the signal to stop.
func (p *process) awaitFile() {
	if p.service.Environment["REDIS_OPERATOR_PASSWORD"] == nil { // there is one server, and no replica
		return
	}
	for late := time.Now().Add(patience); time.Now().Before(late); {
		if !p.asOperator("info persistence | grep -E 'aof_rewrite_(in_progress|scheduled):1'") {
			return
		}
	}
}
