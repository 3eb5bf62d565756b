package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
)

func (a *invocation) bucketWhyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "why BUCKET",
		Short: "Say whether a bucket delivers, and what keeps the jobs that wait",
		Long: `Say whether a bucket delivers, and what keeps the jobs that wait: how many jobs each cause keeps, of
which flow, group or pool, since and until when, and the command that helps. "sends" means that the
deliveries that succeeded in the last 30 s are at least 90 % of the rate. Of a bucket with many flows
a sample is looked at, and the answer says so. Of one job, "dispatcher job show" says why it waits.`,
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
				if v.EmptyUnknown != "" {
					r.row("empty", "unknown: %s", v.EmptyUnknown)
				}
				r.blocked(&v.Verdict)
			})
		})
	}
	a.jsonFlag(cmd)
	return cmd
}

// blocked writes what blocks jobs, a line for each cause, with the command that helps.
func (r rows) blocked(v *opsview.Verdict) {
	for i := range v.Blocked {
		c := &v.Blocked[i]
		text := fmt.Sprintf("%s: %s", opsview.Count(c.Jobs, "job"), c.Code)
		switch {
		case c.Name == "" && c.Flows > 1:
			text += fmt.Sprintf(" of %d flows", c.Flows)
		case c.Scope != shaper.ScopeBucket:
			text += fmt.Sprintf(" of %s %s", c.Scope, quoted(c.Name))
		}
		if c.Reason != "" {
			text += ", " + line(c.Reason, 40) //nolint:mnd // a word
		}
		if c.Since != nil {
			text += ", since " + stamp(*c.Since)
		}
		if c.Until != nil {
			text += ", until " + stamp(*c.Until)
		}
		if c.Action != "" {
			text += "; dispatcher " + c.Action
		}
		if c.Then != "" {
			text += "; once that is repaired: dispatcher " + c.Then
		}
		r.text("blocked", text)
	}
}
