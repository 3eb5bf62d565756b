package cli

import (
	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/app"
)

func (a *invocation) sinkCommand() *cobra.Command {
	address := "127.0.0.1:9000"
	cmd := &cobra.Command{
		Use:   "sink",
		Short: "Receive deliveries and log them, to try things out",
		Long: `Answer every request with 200, and log the job, the attempt, the path, the query, the time
since the request before, and the first 200 bytes of the payload, until SIGINT or SIGTERM. The
sink checks no signature and asks for no key, so it is a toy. The log is as [log] of the
configuration says.

A bucket delivers to it where its webhook.allow_networks has the network of the sink.`,
		Example: `  dispatcher sink
  dispatcher sink --listen 0.0.0.0:9000
  producer send webhooks '{"order":17}' --url http://127.0.0.1:9000/`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return app.Sink(cmd.Context(), a.daemonOptions(), address)
		},
	}
	cmd.Flags().StringVar(&address, "listen", address, "`address` to listen on; GET /readyz there says that it is ready")
	return cmd
}
