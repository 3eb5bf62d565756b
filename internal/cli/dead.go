package cli

import "github.com/spf13/cobra"

func (a *invocation) deadCommand() *cobra.Command {
	return a.serverFlags(group(&cobra.Command{
		Use:   "dead",
		Short: "Look at dead letters, redrive or drop them",
		Long: `Look at dead letters: jobs that will not be tried again, kept with their reason
until they are redriven or dropped.`,
		Example: `  dispatcher dead list webhooks
  dispatcher dead reasons webhooks
  dispatcher dead redrive webhooks --all
  dispatcher dead redrive webhooks --reason http_500 --since 2h --dry-run
  dispatcher dead drop webhooks order-17`,
	}, a.deadListCommand(), a.deadReasonsCommand(), a.deadShowCommand(), a.deadRedriveCommand(), a.deadDropCommand(), a.deadExportCommand()))
}
