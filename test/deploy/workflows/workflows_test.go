// Package workflows tests that no workflow of GitHub gives more rights than its work needs: what is built and tested cannot publish, and what publishes
// runs nothing of this repository.
package workflows

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// workflow is what this test reads of a file.
type workflow struct {
	Permissions *map[string]string `yaml:"permissions"`
	Jobs        map[string]job     `yaml:"jobs"`
}

type job struct {
	Permissions map[string]string `yaml:"permissions"`
	Needs       []string          `yaml:"needs"`
	Steps       []step            `yaml:"steps"`
}

type step struct {
	Uses string            `yaml:"uses"`
	Run  string            `yaml:"run"`
	With map[string]string `yaml:"with"`
}

// pinned is an action by the digest of its commit, which nobody can move as a tag can be moved.
var pinned = regexp.MustCompile(`^[\w-]+/[\w/-]+@[0-9a-f]{40}$`)

// programs are those that a step builds from a module, and versioned is one whose sum Go's checksum database has.
var (
	programs  = regexp.MustCompile(`go (?:run|install) \S+`)
	versioned = regexp.MustCompile(`@v\d+\.\d+\.\d+$`)
)

// read returns the workflows by the name of their file.
func read(t *testing.T) map[string]workflow {
	t.Helper()
	paths, err := filepath.Glob("../../../.github/workflows/*.yml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no workflows: %v", err)
	}
	flows := map[string]workflow{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var flow workflow
		if err := yaml.Unmarshal(text, &flow); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		flows[filepath.Base(path)] = flow
	}
	return flows
}

// writes says whether a job may change something of the repository or publish in its name.
func (j job) writes() bool {
	for scope, right := range j.Permissions {
		if right == "write" && scope != "security-events" { // what a scanner found
			return true
		}
	}
	return false
}

func TestJobsHaveTheRightsTheyNeed(t *testing.T) {
	for file, flow := range read(t) {
		if flow.Permissions == nil || len(*flow.Permissions) > 0 {
			t.Errorf("%s: has rights for all jobs: write `permissions: {}`, and each job names its own", file)
		}
		for name, job := range flow.Jobs {
			if len(job.Permissions) == 0 {
				t.Errorf("%s: job %s names no rights", file, name)
			}
			for _, step := range job.Steps {
				if step.Uses != "" && !pinned.MatchString(step.Uses) {
					t.Errorf("%s: job %s uses %s, which is not by digest", file, name, step.Uses)
				}
				checkout := strings.HasPrefix(step.Uses, "actions/checkout@")
				if checkout && step.With["persist-credentials"] != "false" {
					t.Errorf("%s: job %s leaves its token on the disk, where the code that it runs can read it", file, name)
				}
				if job.writes() && (checkout || strings.Contains(step.Run, "make ")) {
					t.Errorf("%s: job %s may write, and runs code of the repository: %s%s", file, name, step.Uses, step.Run)
				}
				for _, program := range programs.FindAllString(step.Run, -1) {
					if !versioned.MatchString(program) {
						t.Errorf("%s: job %s runs %q, whose version is not fixed", file, name, program)
					}
				}
			}
		}
	}
}

func TestReleaseIsAttested(t *testing.T) {
	publish, ok := read(t)["release.yml"].Jobs["publish"]
	if !ok {
		t.Fatal("release.yml has no job publish")
	}
	if !slices.Contains(publish.Needs, "test") || !slices.Contains(publish.Needs, "build") {
		t.Errorf("publish needs %q: want the tests and the build", publish.Needs)
	}
	var files, image, kept bool
	for _, step := range publish.Steps {
		if strings.HasPrefix(step.Uses, "actions/attest-build-provenance@") {
			files = files || step.With["subject-checksums"] == "dist/SHA256SUMS"
			image = image || strings.HasPrefix(step.With["subject-name"], "ghcr.io/") && step.With["push-to-registry"] == "true"
		}
		kept = kept || strings.Contains(step.Run, "gh release create") && strings.Contains(step.Run, " dist/*.intoto.jsonl")
	}
	if !files || !image || !kept {
		t.Errorf("attested are files: %v, image: %v, and a file of the release has it: %v: want all three", files, image, kept)
	}
	if publish.Permissions["id-token"] != "write" || publish.Permissions["attestations"] != "write" {
		t.Error("publish cannot sign attestations")
	}
}
