package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/cli"
)

// A page has a section for each command that does something, and the date of the commit.
func TestPage(t *testing.T) {
	for _, root := range cli.Commands() {
		text := string(page(root, time.Unix(0, 0)))
		if title := fmt.Sprintf(".TH %s 1 1970-01-01 ", strings.ToUpper(root.Name())); !strings.HasPrefix(text, title) {
			t.Errorf("it begins with %.60q, want %q", text, title)
		}
		described := 0
		var walk func(cmd *cobra.Command)
		walk = func(cmd *cobra.Command) {
			for _, child := range cmd.Commands() {
				walk(child)
			}
			if cmd.IsAvailableCommand() && !cmd.HasAvailableSubCommands() {
				described++
				if !strings.Contains(text, "\n.SS \""+escape(cmd.CommandPath())) {
					t.Errorf("%q is not in the manual", cmd.CommandPath())
				}
			}
		}
		walk(root)
		if sections := strings.Count(text, "\n.SS "); sections != described || described < 8 {
			t.Errorf("the manual of %s has %d sections for %d commands", root.Name(), sections, described)
		}
	}
}

// A line of a text is never a request to man.
func TestLines(t *testing.T) {
	if got, want := lines(".env\n'quoted' --flag \\n"), "\\&.env\n\\(aqquoted\\(aq \\-\\-flag \\en\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
