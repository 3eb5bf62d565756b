package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/build"
	"github.com/tundish-io/tundish/internal/demo"
)

func (a *invocation) demoCommand() *cobra.Command {
	opts := demo.DefaultOptions()
	cmd := a.jsonFlag(&cobra.Command{
		Use:   "demo",
		Short: "See it work: bursts in, an even stream out",
		Long: `Show what Tundish does in one process, with nothing to install and no configuration.
Callers push in bursts at three times the rate, two dispatchers share one bucket, and
a receiver counts arrivals. The exit code is 1 if a job was lost or doubled, or if the
stream was ever too fast. With --stay the bursts go on afterwards, and the console shows
them live, until Ctrl-C.`,
		Example: `  dispatcher demo
  dispatcher demo --rate 200 --seconds 5
  dispatcher demo --json | jq .rate_seen
  dispatcher demo --stay   # then open the address that it prints`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts.JSON, opts.Width, opts.Version = a.json, columns(a.out), build.Of(a.program).Version
			if err := opts.Validate(); err != nil {
				return wrongUsage(cmd, "%s", indented(err))
			}
			return demo.Run(cmd.Context(), opts, a.out, a.err)
		},
	})
	cmd.Flags().IntVar(&opts.Rate, "rate", opts.Rate, "departures a second, a `number`")
	cmd.Flags().IntVar(&opts.Seconds, "seconds", opts.Seconds, "push for this `number` of seconds")
	cmd.Flags().BoolVar(&opts.Stay, "stay", false, "go on after the report, with the console")
	return cmd
}

// indented puts joined errors on lines of their own.
func indented(err error) string { return strings.ReplaceAll(err.Error(), "\n", "\n  ") }
