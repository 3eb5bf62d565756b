package config

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

var update = flag.Bool("update", false, "rewrite what the files of testdata want")

// want begins a line that a faulty file must lead to. Such lines are at its end.
const want = "# want: "

// files makes a ReadFile of a map.
func files(contents map[string]string) func(string) ([]byte, error) {
	return func(path string) ([]byte, error) {
		if text, ok := contents[path]; ok {
			return []byte(text), nil
		}
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
}

// load loads text as config.toml, with an environment.
func load(text string, env ...string) (*Config, error) {
	return Load(Options{Env: env, ReadFile: files(map[string]string{"config.toml": text, "/secret": "hunter2\n"})})
}

func mustLoad(t *testing.T, text string, env ...string) *Config {
	t.Helper()
	c := must.Get(load(text, env...))(t)
	return c
}

func TestFaults(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("testdata/*.toml")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".toml"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(path)
			must.OK(t, err)
			body, _, _ := strings.Cut(string(text), want)
			_, err = load(body)
			if err == nil {
				t.Fatal("no fault")
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("a secret shows in %v", err)
			}
			got := body + want + strings.ReplaceAll(err.Error(), "\n", "\n"+want) + "\n"
			if *update {
				must.OK(t, os.WriteFile(path, []byte(got), 0o644))
			} else if got != string(text) {
				t.Errorf("got\n%s\nwant\n%s", got, text)
			}
		})
	}
}
