package cli

import "github.com/spf13/cobra"

func (a *invocation) webhookCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "webhook",
		Short: "Check the signature of a delivery",
		Long: `Check the signature of a delivery. The command helps to write receivers, and talks
to no server.`,
		Example: a.examples(`  dispatcher webhook verify --secret-env WEBHOOK_SECRET --id order-17 \
    --timestamp 1614265330 --signature "v1,g0hM9S…" < body`),
	}, a.webhookVerifyCommand())
}
