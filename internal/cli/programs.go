package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/app"
	"github.com/tundish-io/tundish/internal/build"
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

// RunProducer runs the command line of the producer and returns the exit code.
// args are without the program's name, environ is as os.Environ returns it. A
// server stops when ctx ends.
func RunProducer(ctx context.Context, args, environ []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &invocation{program: "producer", env: environ, in: stdin, out: stdout, err: stderr}
	return a.run(ctx, a.producerCommand(), args)
}

func (a *invocation) producerCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "producer",
		Short: "Take jobs in",
		Long: `Bursts in, an even stream out: the producer takes jobs in, over its HTTP API
or from the command line, and refuses jobs above the limits.

` + exitCodes,
		Example: `  producer send webhooks '{"order":17}' --url https://example.com/hook
  producer import webhooks jobs.ndjson
  producer load webhooks --jobs 10000 --url http://127.0.0.1:9000/
  producer serve                       # the HTTP API
  producer key new billing --role enqueue --bucket webhooks`,
	}, a.serveCommand(), a.sendCommand(), a.importCommand(), a.loadCommand(), a.keyCommand(), a.webhookCommand(), a.healthCommand(func(c *config.Config) string { return c.Producer.Listen }), a.versionCommand())
}

// Commands returns the command trees of the dispatcher and of the producer, for the manual. They are there to be read, not to be run.
func Commands() []*cobra.Command {
	dispatcher, producer := &invocation{program: "dispatcher"}, &invocation{program: "producer"}
	roots := []*cobra.Command{dispatcher.dispatcherCommand(), producer.producerCommand()}
	dispatcher.prepare(roots[0])
	producer.prepare(roots[1])
	return roots
}

func (a *invocation) dispatchCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "Run the daemon that dispatches jobs",
		Long: `Run the daemon until SIGINT or SIGTERM: it dispatches the jobs of each bucket at the
configured rate, and serves metrics and health on dispatcher.listen. Any number of
dispatchers may share a Redis: together they keep the rate.

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

func (a *invocation) versionCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "version",
		Short: "Say what this program was built from",
		Long:  "Say what this program was built from: its version, commit, date, and Go.",
		Example: `  ` + a.program + ` version
  ` + a.program + ` version --json`,
		Args: positional(),
		RunE: func(*cobra.Command, []string) error {
			b := build.Of(a.program)
			return a.print(b, func(w io.Writer) { fmt.Fprintf(w, "%s %s\n", b.Program, b) })
		},
	})
}

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
