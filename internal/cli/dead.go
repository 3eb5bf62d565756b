package cli

import "github.com/spf13/cobra"

func (a *app) deadCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "dead",
		Short: "Look at dead letters, redrive or drop them",
		Long: `Look at dead letters: jobs that will not be tried again, kept with their reason
until they are redriven or dropped.`,
		Example: `  dispatcher dead list webhooks
  dispatcher dead redrive webhooks --all
  dispatcher dead drop webhooks order-17`,
	}, a.deadListCommand(), a.deadShowCommand(), a.deadRedriveCommand(), a.deadDropCommand())
}

// idsOrAll wants either ids or --all.
func idsOrAll(cmd *cobra.Command, ids []string, all bool) error {
	switch {
	case all && len(ids) > 0:
		return wrongUsage(cmd, "ids and --all are both given: choose one")
	case !all && len(ids) == 0:
		return wrongUsage(cmd, "say which: ids, or --all")
	}
	return nil
}
