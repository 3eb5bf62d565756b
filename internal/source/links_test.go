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
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)|<img src="([^"]+)"`)
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

// allPages returns the texts of all pages, by their path.
func allPages(t *testing.T) map[string]string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "git", "ls-files", "*.md", "llms.txt")
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
	return pages
}

// linksOf returns the targets of a page's links, without anchors of the page itself.
func linksOf(page, text string) map[string]bool {
	found := map[string]bool{}
	for _, l := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		if target, _, _ := strings.Cut(l[1]+l[2], "#"); target != "" && !strings.Contains(target, "://") {
			found[filepath.Join(filepath.Dir(page), target)] = true
		}
	}
	return found
}

// Each page of docs is in both indexes: docs/README.md for people, llms.txt for programs. llms.txt has the form of llmstxt.org.
func TestPagesAreInBothIndexes(t *testing.T) {
	t.Parallel()
	pages := allPages(t)
	for _, index := range []string{"docs/README.md", "llms.txt"} {
		listed := linksOf(index, pages[index])
		for page := range pages {
			if filepath.Dir(page) == "docs" && page != "docs/README.md" && !listed[page] {
				t.Errorf("%s does not list %s: add a row to docs/README.md, then go run ./scripts/operations", index, page)
			}
		}
	}
	title, rest, _ := strings.Cut(pages["llms.txt"], "\n\n")
	if !strings.HasPrefix(title, "# ") || !strings.HasPrefix(rest, "> ") {
		t.Errorf("llms.txt begins with %q and %.20q, want a heading and a quotation", title, rest)
	}
	item, sections := regexp.MustCompile(`^- \[[^\]]+\]\([^)]+\): \S`), strings.Split(rest, "\n## ")
	for _, section := range sections[1:] {
		for _, line := range strings.Split(strings.TrimSpace(section), "\n")[1:] {
			if line != "" && !item.MatchString(line) {
				t.Errorf("llms.txt: %q is no link with a text", line)
			}
		}
	}
	if len(sections) < 4 {
		t.Errorf("llms.txt has %d sections", len(sections)-1)
	}
}

// A link of a page to another one, or to a heading, leads there; the file of a picture exists.
func TestLinksLead(t *testing.T) {
	t.Parallel()
	pages := allPages(t)
	links := 0
	for name, text := range pages {
		for _, found := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			found[1] += found[2]
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
