package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
)

func (a *invocation) statusCommand() *cobra.Command {
	var check bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Sum up all buckets, and show which ones need a look",
		Long: `Sum up all buckets in one line, and show the notes of those that people should look at: paused,
held, disabled flows, dead letters above dead_warn, and the like. With --check, the exit
code is 1 where there is a note, for scripts and monitors.`,
		Example: `  dispatcher status
  dispatcher status --check || echo "look at Tundish"
  dispatcher status --json | jq .notes`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withAPI(cmd.Context(), func(ctx context.Context, c *api) error { return a.status(ctx, c, check) })
		},
	}
	a.jsonFlag(cmd)
	cmd.Flags().BoolVar(&check, "check", false, "exit with 1 where a bucket has a note")
	return a.serverFlags(cmd)
}

func (a *invocation) status(ctx context.Context, c *api, check bool) error {
	v, err := call(ctx, c, httpapi.ShowStatus, struct{}{})
	if err != nil {
		return err
	}
	err = a.print(v, func(w io.Writer) {
		fmt.Fprintf(w, "%s: %s, %d of them in flight; %s\n",
			opsview.Count(v.Buckets, "bucket"), opsview.Count(v.Unfinished, "unfinished job"), v.InFlight, opsview.Count(v.Dead, "dead letter"))
		for _, b := range v.Notes {
			fmt.Fprintf(w, "%s\t%s\n", b.Bucket, strings.Join(b.Notes, "; "))
		}
	})
	if err == nil && check && len(v.Notes) > 0 {
		return fail(exitFailed, "%s with notes", opsview.Count(len(v.Notes), "bucket"))
	}
	return err
}
