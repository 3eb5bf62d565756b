package compose

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

const repository = "../../.."

// programs builds both programs, once, and returns their folder.
var programs = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "compose")
	if err != nil {
		return "", err
	}
	build := exec.CommandContext(context.Background(), "go", "build", "-trimpath", "-o", folder+"/", "./cmd/...")
	build.Dir = repository
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return folder, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if folder, err := programs(); err == nil {
		os.RemoveAll(folder)
	}
	os.Exit(code)
}

// folder is a copy of the folder deploy, in which deploy/compose/up ran.
type folder struct {
	t        *testing.T
	root     string // of a repository with nothing but deploy
	programs string
}

func newFolder(t *testing.T) *folder {
	t.Helper()
	built, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	f := &folder{t, t.TempDir(), built}
	for _, part := range []string{"deploy/compose", "deploy/redis"} {
		if err := os.CopyFS(filepath.Join(f.root, part), os.DirFS(filepath.Join(repository, part))); err != nil {
			t.Fatal(err)
		}
	}
	// Those of a developer who tried it.
	for _, made := range []string{"state", "state.new", ".env"} {
		if err := os.RemoveAll(f.path(made)); err != nil {
			t.Fatal(err)
		}
	}
	// What up calls docker for is written down, and not done.
	script := "#!/bin/sh\necho \"$@\" >>" + filepath.Join(f.root, "asked") + "\n"
	if err := os.MkdirAll(filepath.Join(f.root, "fake"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(f.root, "fake", "docker"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *folder) path(name string) string { return filepath.Join(f.root, "deploy/compose", name) }

func (f *folder) read(name string) string {
	f.t.Helper()
	text, err := os.ReadFile(f.path(name))
	if err != nil {
		f.t.Fatal(err)
	}
	return string(text)
}

// up runs deploy/compose/up with the program dispatcher of this commit, and returns what it prints.
func (f *folder) up(args ...string) (string, error) {
	cmd := exec.CommandContext(f.t.Context(), "deploy/compose/up", args...)
	cmd.Dir = f.root
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(f.root, "fake")+":"+os.Getenv("PATH"), "TUNDISH_DISPATCHER="+filepath.Join(f.programs, "dispatcher"))
	var failure bytes.Buffer
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, failure.String())
	}
	return string(out), err
}

// project loads the files that the .env of the folder names, as Docker does.
func (f *folder) project(profiles ...string) (*types.Project, error) {
	options, err := cli.NewProjectOptions(nil, cli.WithWorkingDirectory(f.path("")), cli.WithEnvFiles(), cli.WithDotEnv,
		func(o *cli.ProjectOptions) error { // Docker runs there; this process does not
			var files []string
			for _, name := range strings.Split(o.Environment["COMPOSE_FILE"], ":") {
				files = append(files, f.path(name))
			}
			o.ConfigPaths = files
			return nil
		}, cli.WithProfiles(profiles))
	if err != nil {
		return nil, err
	}
	return options.LoadProject(f.t.Context())
}
