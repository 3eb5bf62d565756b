package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/config"
)

// RunDispatcher runs the command line of the dispatcher and returns the exit
// code. args are without the program's name, environ is as os.Environ returns
// it. A daemon stops when ctx ends.
func RunDispatcher(ctx context.Context, args, environ []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &invocation{program: "dispatcher", env: environ, in: stdin, out: stdout, err: stderr}
	return a.run(ctx, a.dispatcherCommand(), args)
}

func (a *invocation) dispatcherCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "dispatcher",
		Short: "Let jobs out, evenly",
		Long: `Bursts in, an even stream out: the dispatcher lets jobs out of their buckets at
the configured rate. Its other commands show and change buckets and jobs: in Redis, or
with --server by the API of a dispatcher.

` + exitCodes,
		Example: `  dispatcher demo                      # see it work; needs nothing
  dispatcher init                      # a small configuration that works
  dispatcher run                       # the daemon
  dispatcher status                    # does a bucket need a look?
  dispatcher bucket list               # what is waiting, in flight, dead
  dispatcher bucket list --server http://127.0.0.1:8081
  dispatcher dead redrive webhooks --all
  dispatcher doctor                    # is this Redis fit to keep jobs?`,
	}, a.initCommand(), a.dispatchCommand(), a.demoCommand(), a.sinkCommand(), a.statusCommand(), a.fleetCommand(), a.watchCommand(), a.auditCommand(), a.sessionCommand(), a.usageCommand(), a.bucketCommand(), a.poolCommand(), a.limitCommand(), a.groupCommand(), a.flowCommand(), a.jobCommand(), a.bundleCommand(), a.deadCommand(), a.scheduleCommand(), a.configCommand(), a.responseCommand(), a.doctorCommand(), a.webhookCommand(), a.keyCommand(), a.healthCommand(func(c *config.Config) string { return c.Dispatcher.Listen }), a.versionCommand())
}
