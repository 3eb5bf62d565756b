package source_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// folder finds names of folders in the code spans of a page.
var folder = regexp.MustCompile("`((?:admission|clients|deploy|docs|internal|lua|redisconn|schedule|scripts|shaper|test|tundishfile|tundishtest|workers)(?:/\\w+)*)`")

// ARCHITECTURE.md names each package, and no folder that does not exist.
func TestRoomsAreInArchitecture(t *testing.T) {
	t.Parallel()
	page := string(must.Get(os.ReadFile("../../ARCHITECTURE.md"))(t))
	named := map[string]bool{}
	for _, found := range folder.FindAllStringSubmatch(page, -1) {
		named[found[1]] = true
		if _, err := os.Stat(filepath.Join("../..", found[1])); err != nil {
			t.Errorf("ARCHITECTURE.md names %s: %v", found[1], err)
		}
	}
	list := exec.CommandContext(t.Context(), "git", "ls-files", "*.go")
	list.Dir = "../.."
	names, err := list.Output()
	if err != nil {
		t.Skip("git does not list the files: ", err)
	}
	packages := map[string]bool{}
	for _, name := range strings.Fields(string(names)) {
		dir := filepath.Dir(name)
		switch top, _, _ := strings.Cut(dir, "/"); top {
		case ".", "clients", "cmd", "deploy", "examples", "scripts", "test": // programs and tests, which the page names as a whole
		default:
			packages[dir] = true
		}
	}
	if len(packages) < 50 {
		t.Errorf("found %d packages", len(packages))
	}
	for dir := range packages {
		if !named[dir] && filepath.Base(dir) != "main" {
			t.Errorf("ARCHITECTURE.md does not name the package %s", dir)
		}
	}
	if len(page) > 12<<10 {
		t.Errorf("ARCHITECTURE.md has %d bytes, want at most %d: move details into the comment of their package", len(page), 12<<10)
	}
}
