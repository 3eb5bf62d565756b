// Package packages tests what `make ship` builds: by itself a package of this machine's architecture, and with the tag "ship" a whole release.
package packages

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// root is the folder of the repository.
var root = func() string {
	folder, err := filepath.Abs("../../..")
	if err != nil {
		panic(err)
	}
	return folder
}()

// command runs a program in a folder and returns what it printed.
func command(t *testing.T, folder string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = folder, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// tool finds a tool, or else skips the test: what it would show is not verified then.
func tool(t *testing.T, name, install string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("not verified: there is no %s; %s", name, install)
	}
	return path
}

// built is one file of a release, as goreleaser lists it.
type built struct {
	Name, Path, Type, Goos, Goarch string
}

// release is a folder with a release.
type release struct {
	dist  string
	files []built
}

// change is a text of .goreleaser.yaml that a test replaces.
type change struct{ from, to string }

// oneTarget has goreleaser build for this machine's architecture alone, which takes seconds.
var oneTarget = []change{{"goos: [linux, darwin]", "goos: [linux]"}, {"goarch: [amd64, arm64]", "goarch: [" + runtime.GOARCH + "]"}}

// ship builds a release of a tree with goreleaser.
func ship(t *testing.T, tree string, env []string, changes ...change) release {
	t.Helper()
	goreleaser := filepath.Join(root, ".tools/goreleaser")
	if _, err := os.Stat(goreleaser); err != nil {
		t.Fatalf("%v: run make .tools/goreleaser .tools/cyclonedx-gomod", err)
	}
	text, err := os.ReadFile(filepath.Join(tree, ".goreleaser.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	dist := filepath.Join(folder, "dist")
	changed := string(text) + "\ndist: " + dist + "\n"
	for _, c := range changes {
		if strings.Count(changed, c.from) != 1 {
			t.Fatalf(".goreleaser.yaml has %q %d times, want once", c.from, strings.Count(changed, c.from))
		}
		changed = strings.Replace(changed, c.from, c.to, 1)
	}
	config := filepath.Join(folder, "goreleaser.yaml")
	if err := os.WriteFile(config, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	path := "PATH=" + filepath.Join(root, ".tools") + ":" + os.Getenv("PATH")
	command(t, tree, append(env, path), "scripts/ship", "files", "--config", config)
	var made release
	listed, err := os.ReadFile(filepath.Join(dist, "artifacts.json"))
	if err == nil {
		err = json.Unmarshal(listed, &made.files)
	}
	if err != nil {
		t.Fatal(err)
	}
	made.dist = dist
	return made
}

// find returns the path of the one file with such a name.
func (r release) find(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(r.dist, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%q of %s, want one: %v", found, pattern, err)
	}
	return found[0]
}

func (r release) sums(t *testing.T) string {
	t.Helper()
	sums, err := os.ReadFile(filepath.Join(r.dist, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	return string(sums)
}

// debArch is this machine's architecture as Debian calls it, which is Go's name for the two that are built.
var debArch = runtime.GOARCH

// modules are those that `go version -m` lists of a program, without the program's own.
func modules(t *testing.T, program string) map[string]bool {
	t.Helper()
	listed := map[string]bool{}
	for line := range strings.Lines(command(t, root, nil, "go", "version", "-m", program)) {
		if f := strings.Fields(line); len(f) >= 3 && f[0] == "dep" {
			listed[f[1]+"@"+f[2]] = true
		} else if len(f) > 0 && f[0] == "=>" {
			t.Fatalf("%s has a replaced module: %s", program, line)
		}
	}
	if len(listed) < 20 {
		t.Fatalf("%s has %d modules: %v", program, len(listed), listed)
	}
	return listed
}

// components are the modules of an SBOM.
func components(t *testing.T, document string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	var sbom struct {
		BOMFormat  string
		Components []struct{ Name, Version, PURL string }
	}
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&sbom); err != nil {
		t.Fatal(err)
	}
	if sbom.BOMFormat != "CycloneDX" {
		t.Errorf("%s is of the format %q", document, sbom.BOMFormat)
	}
	listed := map[string]bool{}
	for _, c := range sbom.Components {
		listed[c.Name+"@"+c.Version] = true
		if !strings.HasPrefix(c.PURL, "pkg:golang/") {
			t.Errorf("%s: %q has the package URL %q", document, c.Name, c.PURL)
		}
	}
	return listed
}

// checkSBOMs compares each SBOM with the program that it describes.
func (r release) checkSBOMs(t *testing.T, want int) {
	t.Helper()
	checked := 0
	for _, f := range r.files {
		if f.Type != "Binary" {
			continue
		}
		checked++
		program := filepath.Join(root, f.Path)
		if filepath.IsAbs(f.Path) {
			program = f.Path
		}
		document := r.find(t, fmt.Sprintf("%s_*_%s_%s.cdx.json", f.Name, f.Goos, f.Goarch))
		in, is := components(t, document), modules(t, program)
		for module := range is {
			if !in[module] {
				t.Errorf("%s lacks %s of %s", document, module, f.Path)
			}
		}
		for module := range in {
			if !is[module] {
				t.Errorf("%s has %s, which is not in %s", document, module, f.Path)
			}
		}
		for module := range is {
			name, _, _ := strings.Cut(module, "@")
			if _, err := os.Stat(filepath.Join(root, "bin/package/licences", name)); err != nil {
				t.Errorf("%s is in %s, and its licence is in no package: %v", module, f.Path, err)
			}
		}
	}
	if checked != want {
		t.Errorf("%d programs, want %d: %+v", checked, want, r.files)
	}
}

// entry is a file of a package.
type entry struct{ mode, owner string }

// debFiles are the files of a deb, by name.
func debFiles(t *testing.T, deb string) map[string]entry {
	t.Helper()
	files := map[string]entry{}
	for line := range strings.Lines(command(t, root, nil, "dpkg-deb", "--contents", deb)) {
		f := strings.Fields(line)
		files[strings.TrimPrefix(strings.TrimSuffix(f[5], "/"), ".")] = entry{f[0], f[1]}
	}
	return files
}

// wanted are files of both packages; the mode and the owner are "-rw-r--r--" and "root/root" where nothing is said.
var wanted = map[string]entry{
	"/usr/bin/dispatcher": {mode: "-rwxr-xr-x"}, "/usr/bin/producer": {mode: "-rwxr-xr-x"},
	"/etc/tundish": {mode: "drwxr-xr-x"}, "/etc/tundish/config.toml": {"-rw-r-----", "root/tundish"},
	"/usr/lib/systemd/system/tundish-dispatcher.service": {}, "/usr/lib/systemd/system/tundish-producer.service": {},
	"/usr/share/man/man1/dispatcher.1.gz": {}, "/usr/share/man/man1/producer.1.gz": {},
	"/usr/share/bash-completion/completions/dispatcher": {}, "/usr/share/bash-completion/completions/producer": {},
	"/usr/share/zsh/site-functions/_dispatcher": {}, "/usr/share/zsh/site-functions/_producer": {},
	"/usr/share/fish/vendor_completions.d/dispatcher.fish": {}, "/usr/share/fish/vendor_completions.d/producer.fish": {},
	"/usr/share/doc/tundish/licences/github.com/spf13/cobra/LICENSE.txt": {},
}

func checkFiles(t *testing.T, name string, has map[string]entry) {
	t.Helper()
	for file, want := range wanted {
		want.mode, want.owner = cmp.Or(want.mode, "-rw-r--r--"), cmp.Or(want.owner, "root/root")
		if got := has[file]; got != want {
			t.Errorf("%s in %s is %v, want %v", file, name, got, want)
		}
	}
}
