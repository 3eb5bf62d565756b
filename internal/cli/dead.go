package cli

import "github.com/spf13/cobra"

func (a *app) deadCommand() *cobra.Command {
	return a.serverFlags(group(&cobra.Command{
		Use:   "dead",
		Short: "Look at dead letters, redrive or drop them",
		Long: `Look at dead letters: jobs that will not be tried again, kept with their reason
until they are redriven or dropped.`,
		Example: `  dispatcher dead list webhooks
  dispatcher dead redrive webhooks --all
  dispatcher dead redrive webhooks --reason http_500 --since 2h --dry-run
  dispatcher dead drop webhooks order-17`,
	}, a.deadListCommand(), a.deadShowCommand(), a.deadRedriveCommand(), a.deadDropCommand(), a.deadExportCommand()))
}

// idsOrAll wants ids, --all, or a filter, and --dry-run with a filter only.
func idsOrAll(cmd *cobra.Command, ids []string, all, filtered, dryRun bool) error {
	switch {
	case all && len(ids) > 0:
		return wrongUsage(cmd, "ids and --all are both given: choose one")
	case filtered && (all || len(ids) > 0):
		return wrongUsage(cmd, "a filter is given beside ids or --all: choose one")
	case dryRun && !filtered:
		return wrongUsage(cmd, "--dry-run goes with a filter, such as --cause")
	case !all && !filtered && len(ids) == 0:
		return wrongUsage(cmd, "say which: ids, a filter such as --cause, or --all")
	}
	return nil
}
