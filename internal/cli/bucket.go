package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/opsview"
)

func (a *app) bucketCommand() *cobra.Command {
	return a.serverFlags(group(&cobra.Command{
		Use:   "bucket",
		Short: "Look at buckets, pause, change or purge them",
		Long: `Look at buckets: their jobs and their rate. Pause, change or purge them while they
run. All processes obey at once, and after every restart.`,
		Example: `  dispatcher bucket list
  dispatcher bucket show webhooks --json
  dispatcher bucket pause webhooks --reason "the receiver is down"
  dispatcher bucket set webhooks --rate 20/s
  dispatcher bucket release webhooks
  dispatcher bucket list --diff`,
	}, a.bucketListCommand(), a.bucketShowCommand(), a.bucketPauseCommand(), a.bucketResumeCommand(), a.bucketReleaseCommand(),
		a.bucketSetCommand(), a.bucketResetCommand(), a.bucketPurgeCommand()))
}

// oldest is the age of the job at the head of a bucket, for people.
func oldest(v *opsview.Bucket) string {
	if v.OldestAge == 0 {
		return "-"
	}
	return human(time.Duration(v.OldestAge * float64(time.Second)))
}
