package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/httpapi"
)

func (a *invocation) limitRefusalsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "refusals LIMIT",
		Short: "Show whom a limit refused most in the last ten minutes",
		Long: `Show whom a limit refused most in the last ten minutes, in buckets and where it is asked on its own, by
all processes. They count in memory, and tell it within five seconds: a refusal writes nothing.`,
		Example: `  dispatcher limit refusals per-caller
  dispatcher limit refusals per-caller --json | jq -r '.callers[0].caller'`,
		Args: positional("LIMIT"),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withAPI(cmd.Context(), func(ctx context.Context, c *api) error {
			v, err := call(ctx, c, httpapi.ShowRefusals, httpapi.LimitName{Limit: args[0]})
			if err != nil {
				return err
			}
			if len(v.Callers) == 0 && v.Others == 0 && !a.json {
				a.note("limit %q refused nobody in the last ten minutes, as far as is told: processes tell it within five seconds", args[0])
				return nil
			}
			return a.print(v, func(w io.Writer) {
				fmt.Fprintln(w, "REFUSED\tCALLER")
				for _, caller := range v.Callers {
					fmt.Fprintf(w, "%d\t%s\n", caller.Refused, line(caller.Caller, 200))
				}
				if v.Others > 0 {
					fmt.Fprintf(w, "%d\tothers\n", v.Others)
				}
			})
		})
	}
	a.jsonFlag(cmd)
	return cmd
}
