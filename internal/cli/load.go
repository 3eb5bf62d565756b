package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/load"
	"github.com/tundish-io/tundish/internal/opsview"
)

func (a *invocation) loadCommand() *cobra.Command {
	opts := load.DefaultOptions()
	var key string
	cmd := a.jsonFlag(&cobra.Command{
		Use:   "load BUCKET",
		Short: "Generate load: many jobs, at a rate or as fast as it goes",
		Long: `Send many jobs to the HTTP API and report the answers: admitted, refused and failed, and
the latency. With --rate, latency counts from the time at which a request should have
started. A refusal is no failure: the exit code is 1 only if jobs failed, and 4 if the server
has no such bucket.`,
		Example: `  producer load webhooks --jobs 10000 --url http://127.0.0.1:9000/
  producer load webhooks --jobs 100000 --rate 5000 --batch 100 --json
  producer load webhooks --jobs 3000 --wait
  producer load webhooks --jobs 20000 --flow customer --flows 2000 --batch 100 --wait`,
		Args: positional("BUCKET"),
		RunE: func(cmd *cobra.Command, args []string) error {
			server, err := a.server(opts.Server)
			if err != nil {
				return err
			}
			if err := checkPriority(cmd, opts.Priority); err != nil {
				return err
			}
			secret, err := a.clientKey(key)
			if err != nil {
				return err
			}
			opts.Server, opts.Bucket, opts.Key = server, args[0], secret.Reveal()
			if err := opts.Validate(); err != nil {
				return wrongUsage(cmd, "%s", indented(err))
			}
			return a.generate(cmd, opts)
		},
	})
	f := cmd.Flags()
	f.StringVar(&opts.Server, "server", "", "`address` of the API (default: producer.listen of the configuration)")
	keyFlag(cmd, &key)
	f.StringVar(&opts.Priority, "priority", "", "critical, high, normal or low, a `word` (default: normal)")
	f.StringVar(&opts.Flow, "flow", "", "`name` of the flow, where the bucket has flows that jobs name")
	f.IntVar(&opts.Flows, "flows", 0, "`number` of flows that the jobs take turns in; their names are --flow with -1, -2 and so on")
	f.StringVar(&opts.URL, "url", "", "`URL` to deliver to (default: the bucket's)")
	f.IntVar(&opts.Jobs, "jobs", opts.Jobs, "`number` of jobs")
	f.Float64Var(&opts.Rate, "rate", 0, "jobs a second, a `number`; 0 is as fast as it goes")
	f.IntVar(&opts.Concurrency, "concurrency", opts.Concurrency, "requests at a time, a `number`")
	f.IntVar(&opts.Size, "size", opts.Size, "`bytes` of a payload")
	f.IntVar(&opts.Batch, "batch", opts.Batch, "jobs in a request, a `number`")
	f.BoolVar(&opts.Wait, "wait", false, "wait and try again where a job is refused for now, or Redis is away")
	return cmd
}

func (a *invocation) generate(cmd *cobra.Command, opts load.Options) error {
	report, err := load.Run(cmd.Context(), opts, a.err)
	if errors.Is(err, load.ErrUnreachable) {
		return fail(exitUnreachable, "%w: start one with `dispatcher run` (embedded store) or `producer serve`, or name another with --server", err)
	}
	if a.json {
		err = errors.Join(err, writeJSON(a.out, report))
	} else {
		_, writeErr := fmt.Fprint(a.out, report)
		err = errors.Join(err, writeErr)
	}
	if err != nil {
		return err
	}
	const unknown = "404 unknown-bucket"
	if report.Sent > 0 && report.Failed[unknown] == report.Sent {
		return fail(exitNotFound, "unknown-bucket: %s", line(report.Details[unknown]+unknownAt(opts.Server), 500))
	}
	if failed := report.Sent - report.Admitted - sum(report.Refused); failed > 0 {
		return fail(exitFailed, "%d of %s failed", failed, opsview.Count(report.Sent, "job"))
	}
	return nil
}

func sum(counts map[string]int) int {
	n := 0
	for _, count := range counts {
		n += count
	}
	return n
}
