package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/app"
)

func (a *invocation) serveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "serve",
		Short: "Serve the HTTP API that takes jobs in",
		Long: `Serve the HTTP API on producer.listen until SIGINT or SIGTERM; a second signal
ends it at once. Any number of producers may share a Redis. While Redis is
unavailable it goes on: /readyz is 503, and jobs are answered 503.

SIGHUP, or a change of the configuration file, applies keys, limits, pools and buckets
that came, went or changed. A bucket that left is answered 404. After a fault the daemon
applies nothing.
` + restartTables() + ` need a restart.

With redis.url = "embedded" there is nothing to serve: the embedded store and the
API are both in "dispatcher run".`,
		Example: `  TUNDISH_REDIS_URL=redis://127.0.0.1:6379 producer serve
  producer serve --config /etc/tundish/config.toml`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := app.Produce(cmd.Context(), a.daemonOptions())
			if errors.Is(err, app.ErrEmbedded) {
				return fail(exitUsage, "%w", err)
			}
			return err
		},
	}
}
