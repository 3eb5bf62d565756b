package cli

import "github.com/spf13/cobra"

func (a *invocation) keyCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "key",
		Short: "Make API keys",
		Long: `Make API keys. The configuration holds only their hashes, in [[keys]]. To revoke a key,
remove its table. These commands do not talk to a server.`,
		Example: a.examples(`  producer key new billing --role enqueue --bucket webhooks`),
	}, a.keyNewCommand())
}
