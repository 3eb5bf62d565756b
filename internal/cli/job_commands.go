package cli

import "github.com/spf13/cobra"

func (a *invocation) jobCommand() *cobra.Command {
	return a.serverFlags(group(&cobra.Command{
		Use:   "job",
		Short: "List jobs, look at one, retry or cancel it",
		Long:  "List jobs, look at one, or cancel it while it waits. Make jobs due that wait for another attempt.",
		Example: `  dispatcher job list webhooks --state retrying
  dispatcher job find order-17
  dispatcher job show webhooks 0199c1a2-…
  dispatcher job result crm 0199c1a2-…
  dispatcher job retry webhooks --flow acme
  dispatcher job cancel webhooks order-17`,
	}, a.jobListCommand(), a.jobFindCommand(), a.jobShowCommand(), a.jobResultCommand(), a.jobRetryCommand(), a.jobCancelCommand()))
}
