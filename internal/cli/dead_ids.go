package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/opsview"
)

// idsOrAll requires ids, --all, or a filter, and --dry-run with a filter only. --all with a filter means all that the filter matches.
func idsOrAll(cmd *cobra.Command, ids []string, all, filtered, dryRun bool) error {
	switch {
	case all && len(ids) > 0:
		return wrongUsage(cmd, "ids and --all are both given: choose one")
	case filtered && len(ids) > 0:
		return wrongUsage(cmd, "ids and a filter are both given: choose one")
	case dryRun && !filtered:
		return wrongUsage(cmd, "--dry-run goes with a filter, such as --cause")
	case !all && !filtered && len(ids) == 0:
		return wrongUsage(cmd, "say which: ids, a filter such as --cause, or --all")
	}
	return nil
}

// printMatched prints how many dead letters a filter matches.
func (a *invocation) printMatched(n int) error {
	view := struct {
		Matched int `json:"matched"`
	}{n}
	return a.print(view, func(w io.Writer) {
		fmt.Fprintf(w, "the filter means: %s; nothing is changed\n", opsview.Count(n, "dead letter"))
	})
}
