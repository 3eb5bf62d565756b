package cli

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/httpapi"
)

func (a *invocation) bucketWhyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "why BUCKET",
		Short: "Say why a bucket sends nothing",
		Long: `Say why a bucket sends nothing, and until when: nothing waits, it is paused, no process delivers its
jobs, it is outside of its hours, its receiver backs off, a quota or a budget is used up, its pool
holds it, or as many requests are in flight as may be. Of one job, "dispatcher job show" says it.`,
		Example: `  dispatcher bucket why webhooks
  dispatcher bucket why webhooks --json | jq -r .code`,
		Args: positional("BUCKET"),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withAPI(cmd.Context(), func(ctx context.Context, c *api) error {
			v, err := call(ctx, c, httpapi.ShowWhy, theBucket(args))
			if err != nil {
				return err
			}
			return a.print(v, func(w io.Writer) {
				r := rows{w, time.Now()}
				r.text("bucket", v.Bucket)
				r.text("why", string(v.Code))
				r.text("that is", v.Sentence)
				if v.Until != nil {
					r.row("until", "%s (%s)", stamp(*v.Until), relative(*v.Until, r.now))
				}
			})
		})
	}
	a.jsonFlag(cmd)
	return cmd
}
