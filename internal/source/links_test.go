package source_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	fence   = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.*)$`)
	markup  = regexp.MustCompile("\\[([^\\]]*)\\]\\([^)]*\\)|[`*]")
	dropped = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// anchors are the addresses of a page's headings, as GitHub makes them.
func anchors(page string) map[string]bool {
	found := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		text := strings.ToLower(markup.ReplaceAllString(h[1], "$1"))
		base := strings.ReplaceAll(dropped.ReplaceAllString(text, ""), " ", "-")
		for name, n := base, 1; ; n++ {
			if !found[name] {
				found[name] = true
				break
			}
			name = fmt.Sprintf("%s-%d", base, n)
		}
	}
	return found
}

// A link of a page to another one, or to a heading, leads there.
func TestLinksLead(t *testing.T) {
	t.Parallel()
	list := exec.CommandContext(t.Context(), "git", "ls-files", "*.md")
	list.Dir = "../.."
	names, err := list.Output()
	if err != nil {
		t.Skip("git does not list the pages: ", err)
	}
	pages := map[string]string{}
	for _, name := range strings.Fields(string(names)) {
		text, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		pages[name] = string(text)
	}
	links := 0
	for name, text := range pages {
		for _, found := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			target, anchor, _ := strings.Cut(found[1], "#")
			if strings.Contains(found[1], "://") || strings.HasPrefix(found[1], "mailto:") {
				continue
			}
			links++
			path := name
			if target != "" {
				path = filepath.Join(filepath.Dir(name), target)
			}
			if _, err := os.Stat(filepath.Join("../..", path)); err != nil {
				t.Errorf("%s links to %s: %v", name, found[1], err)
				continue
			}
			page, isPage := pages[path]
			switch {
			case target != "" && path == name && anchor == "":
				t.Errorf("%s links to itself", name)
			case anchor != "" && isPage && !anchors(page)[anchor]:
				t.Errorf("%s links to %s, and that page has no such heading", name, found[1])
			}
		}
	}
	if links < 300 {
		t.Errorf("found %d links", links)
	}
}
