package cli

import (
	"github.com/spf13/cobra"
)

func (a *invocation) bucketCommand() *cobra.Command {
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
		SuggestFor: []string{"drain"}, // was a command of its own
	}, a.bucketListCommand(), a.bucketShowCommand(), a.bucketWhyCommand(), a.bucketHistoryCommand(), a.bucketTimetableCommand(), a.bucketPauseCommand(), a.bucketResumeCommand(), a.bucketReleaseCommand(),
		a.bucketDrainCommand(), a.bucketSetCommand(), a.bucketResetCommand(), a.bucketPurgeCommand()))
}
