package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/shaper"
)

func (a *invocation) bundleCommand() *cobra.Command {
	return a.serverFlags(group(&cobra.Command{
		Use:   "bundle",
		Short: "Open a bundle of jobs, and see how many have ended",
		Long: `A bundle sends one callback when all its jobs have ended: done, dead, dropped or cancelled.
Open it before its first job. A job names its bundle in its field bundle, or with producer
send --bundle.`,
		Example: `  dispatcher bundle open letters newsletter-7 --size 2000
  dispatcher bundle show letters newsletter-7`,
	}, a.bundleOpenCommand(), a.bundleShowCommand()))
}

func theBundle(args []string) httpapi.BundleName {
	return httpapi.BundleName{BucketName: theBucket(args), Bundle: args[1]}
}

func (a *invocation) bundleOpenCommand() *cobra.Command {
	var change httpapi.BundleChange
	cmd := a.jsonFlag(&cobra.Command{
		Use:   "open BUCKET BUNDLE",
		Short: "Open a bundle, or set its size or callback URL",
		Long: `Open a bundle, or set the size or the callback URL of an open one. A bundle has finished when
as many jobs as its size have ended. It is safe to repeat the command. A bundle is kept for
seven days after its last change.`,
		Example: `  dispatcher bundle open letters newsletter-7
  dispatcher bundle open letters newsletter-7 --size 2000 --callback-url https://example.com/finished`,
		Args: positional("BUCKET", "BUNDLE"),
		RunE: show(a, "bucket", httpapi.OpenBundle, func(cmd *cobra.Command, args []string) (httpapi.BundleChange, error) {
			if change.Size < 1 && cmd.Flags().Changed("size") {
				return change, wrongUsage(cmd, "--size %d: want 1 or more", change.Size)
			}
			change.BundleName = theBundle(args)
			return change, nil
		}, printBundle),
	})
	f := cmd.Flags()
	f.Int64Var(&change.Size, "size", 0, "`number` of jobs of the bundle (default: set later)")
	f.StringVar(&change.CallbackURL, "callback-url", "", "`URL` to notify when the bundle has finished (default: callbacks.url of the bucket)")
	return cmd
}

func (a *invocation) bundleShowCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "show BUCKET BUNDLE",
		Short: "Show how many jobs of a bundle have ended",
		Long:  "Show how many jobs of a bundle have ended, and how.",
		Example: `  dispatcher bundle show letters newsletter-7
  dispatcher bundle show letters newsletter-7 --json | jq .finished_at`,
		Args: positional("BUCKET", "BUNDLE"),
		RunE: show(a, "bucket", httpapi.ShowBundle, asking(theBundle), printBundle),
	})
}

func printBundle(w io.Writer, v *shaper.BundleJSON) {
	r := rows{w, time.Now()}
	r.text("bundle", v.ID)
	of := ""
	if v.Size > 0 {
		of = fmt.Sprintf(" of %d", v.Size)
	}
	r.row("ended", "%d%s: %d done, %d dead, %d dropped, %d cancelled", v.Ended, of, v.Done, v.Dead, v.Dropped, v.Cancelled)
	r.at("opened", v.OpenedAt)
	r.at("finished", v.FinishedAt)
	if v.Size == 0 {
		r.text("note", "its size is not known yet: say it with `dispatcher bundle open --size`, or it never finishes")
	}
}
