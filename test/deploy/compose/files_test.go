package compose

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"
)

// watch is the profile of Prometheus and Grafana.
const watch = "watch"

var variants = []string{"", "sentinel", "cluster"}

// Every combination of files loads; without the secrets of up, none does.
func TestFilesLoad(t *testing.T) {
	t.Parallel()
	for _, variant := range variants {
		t.Run(variant, func(t *testing.T) {
			t.Parallel()
			f := newFolder(t)
			if _, err := f.up(strings.Fields(variant)...); err != nil {
				t.Fatal(err)
			}
			for _, profiles := range [][]string{nil, {watch}} {
				project, err := f.project(profiles...)
				if err != nil {
					t.Fatal(err)
				}
				for name, service := range project.Services {
					ours := strings.HasPrefix(service.Image, "tundish:")
					if ours && (service.User != "65532:65532" || !service.ReadOnly || service.Restart == "") {
						t.Errorf("%s is not as closed as the image allows: %+v", name, service)
					}
					for _, port := range service.Ports {
						if port.HostIP != "127.0.0.1" {
							t.Errorf("%s is reached from other machines: %+v", name, port)
						}
					}
				}
				if got := slices.Contains(project.ServiceNames(), "prometheus"); got != (profiles != nil) {
					t.Errorf("prometheus with the profiles %q: %t", profiles, got)
				}
			}
			if err := os.WriteFile(f.path("state/env"), []byte("COMPOSE_FILE="+strings.TrimPrefix(f.files(), "COMPOSE_FILE=")+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := f.project(); err == nil || !strings.Contains(err.Error(), "run deploy/compose/up") {
				t.Errorf("without secrets: %v", err)
			}
		})
	}
}

// files is the line of .env that names the files.
func (f *folder) files() string {
	for line := range strings.Lines(f.read("state/env")) {
		if strings.HasPrefix(line, "COMPOSE_FILE=") {
			return strings.TrimSpace(line)
		}
	}
	f.t.Fatal("state/env names no files")
	return ""
}

// A stop may take longer than a program waits.
func TestStopsAreLongEnough(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	if _, err := f.up(); err != nil {
		t.Fatal(err)
	}
	project, err := f.project()
	if err != nil {
		t.Fatal(err)
	}
	print := exec.CommandContext(t.Context(), filepath.Join(f.programs, "dispatcher"), "config", "print", "--json", "--config", f.path("state/tundish/tundish.toml"))
	out, err := print.Output()
	if err != nil {
		t.Fatal(err)
	}
	var keys []struct{ Key, Value string }
	if err := json.Unmarshal(out, &keys); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"dispatcher", "producer"} {
		at := slices.IndexFunc(keys, func(k struct{ Key, Value string }) bool { return k.Key == program+".shutdown_timeout" })
		wait, err := time.ParseDuration(strings.Trim(keys[max(at, 0)].Value, `"`))
		if err != nil {
			t.Fatalf("%s: %v", program, err)
		}
		if grace := time.Duration(*project.Services[program].StopGracePeriod); grace <= wait {
			t.Errorf("%s is killed after %s, and may wait for %s", program, grace, wait)
		}
	}
}

// tree are the files below a folder, with their modes and texts.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(root, path)
		files[name] = info.Mode().String() + " " + string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// The first run makes all secrets, and starts; the second makes none.
func TestUp(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	if _, err := f.up("cluser"); err == nil || !strings.Contains(err.Error(), `no variant "cluser": want sentinel, cluster`) {
		t.Errorf("a variant that there is not: %v", err)
	}
	said, err := f.up("sentinel")
	if err != nil {
		t.Fatal(err)
	}
	first := tree(t, f.path("state"))
	if again, err := f.up("sentinel"); err != nil || again != said {
		t.Errorf("the second run: %v\n%s", err, again)
	}
	if diff := cmp.Diff(first, tree(t, f.path("state"))); diff != "" {
		t.Errorf("the second run changes the state:\n%s", diff)
	}
	if asked, want := string(readFile(t, filepath.Join(f.root, "asked"))), strings.Repeat("compose up --detach --wait\n", 2); asked != want {
		t.Errorf("docker was asked %q, want %q", asked, want)
	}
	if _, err := f.up(); err == nil || !strings.Contains(err.Error(), "the data here are of compose.yaml:sentinel.yaml") {
		t.Errorf("another variant on the same data: %v", err)
	}
	secrets := 0
	for name, text := range first {
		if strings.HasSuffix(name, ".secret") || name == "env" {
			secrets++
			if !strings.HasPrefix(text, "-rw------- ") {
				t.Errorf("others may read %s: %.11s", name, text)
			}
		}
		// A container gets hashes alone; Prometheus needs a key, which may only look.
		if mounted := strings.HasPrefix(name, "tundish/") || strings.HasPrefix(name, "redis/"); mounted && strings.Contains(text, "tdk_") {
			t.Errorf("%s has a secret:\n%s", name, text)
		}
	}
	if info, err := os.Stat(f.path("state")); err != nil || info.Mode().Perm() != 0o700 || secrets != 7 {
		t.Errorf("%d secrets, %v, %v", secrets, info, err)
	}
	if strings.Contains(said, "tdk_") {
		t.Errorf("a secret is on the terminal: %s", said)
	}
	for _, made := range []string{".env", "state/env", "state/api.secret", "state.new/env"} {
		if err := exec.CommandContext(t.Context(), "git", "-C", repository, "check-ignore", "-q", "deploy/compose/"+made).Run(); err != nil {
			t.Errorf("git does not ignore %s: %v", made, err)
		}
	}
}

// An interrupted first run is made anew, and a program of another version is found out.
func TestUpWithoutAKey(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	f.programs = filepath.Join(f.root, "fake")
	if err := os.WriteFile(filepath.Join(f.programs, "dispatcher"), []byte("#!/bin/sh\necho an old one\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := f.up(); err == nil || !strings.Contains(err.Error(), "printed no secret") {
		t.Errorf("a program that makes no key: %v", err)
	}
	if _, err := os.Stat(f.path("state")); err == nil {
		t.Error("there is a state without secrets")
	}
	f.programs, _ = programs()
	if _, err := f.up(); err != nil {
		t.Errorf("the run after an interrupted one: %v", err)
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// scrapeConfig is what prometheus.yaml uses of the format of Prometheus: another key is an error.
type scrapeConfig struct {
	Global struct {
		Interval string `yaml:"scrape_interval"`
	}
	Rules []string `yaml:"rule_files"`
	Jobs  []struct {
		Name          string `yaml:"job_name"`
		Authorization struct {
			File string `yaml:"credentials_file"`
		}
		Found []struct {
			Names    []string
			Type     string
			Port     int
			Interval string `yaml:"refresh_interval"`
		} `yaml:"dns_sd_configs"`
	} `yaml:"scrape_configs"`
}

func scrapes(t *testing.T) scrapeConfig {
	t.Helper()
	in := yaml.NewDecoder(bytes.NewReader(readFile(t, repository+"/deploy/compose/prometheus.yaml")))
	in.KnownFields(true)
	var config scrapeConfig
	if err := in.Decode(&config); err != nil {
		t.Fatal(err)
	}
	return config
}
