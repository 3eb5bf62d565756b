package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/app"
	"github.com/tundish-io/tundish/internal/build"
)

func (a *invocation) dispatchCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "Run the daemon that lets jobs out",
		Long: `Run the daemon until SIGINT or SIGTERM: it lets jobs out of their buckets at the
configured rate, and serves metrics and health on dispatcher.listen. Any number of
dispatchers may share a Redis: the rate is that of all together.

With redis.url = "embedded" it is the whole of Tundish in one process: the store,
in memory only, and the API that takes jobs in, on producer.listen.

A stop admits no new jobs, claims nothing more, and gives deliveries
dispatcher.shutdown_timeout to end. A second signal ends the process at once; jobs in
flight are delivered again when their lease ends. While Redis is unavailable the daemon
goes on trying, and /readyz is 503.

SIGHUP, or a change of the configuration file, applies buckets, workers, pools, limits,
hooks and keys that came, went or changed. Deliveries under way end as they began. Of a
bucket that left, nothing more is claimed. After a fault the daemon applies nothing.
` + restartTables() + ` need a restart.`,
		Example: `  dispatcher run
  TUNDISH_REDIS_URL=redis://127.0.0.1:6379 dispatcher run
  curl -s 127.0.0.1:8081/readyz?verbose`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return app.Dispatch(cmd.Context(), a.daemonOptions())
		},
	}
}

// daemonOptions returns the options of the daemons.
func (a *invocation) daemonOptions() app.Options {
	return app.Options{Config: a.options(), Stderr: a.err, IsTerminal: isTerminal(a.err), Version: build.Of(a.program).String()}
}

// restartTables names the tables of the configuration whose changes need a restart, as a help text has them.
func restartTables() string {
	last := len(app.RestartTables) - 1
	return "[" + strings.Join(app.RestartTables[:last], "], [") + "] and [" + app.RestartTables[last] + "]"
}
