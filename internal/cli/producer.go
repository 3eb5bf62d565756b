package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/config"
)

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
