package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/build"
)

func (a *invocation) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
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
	}
	a.jsonFlag(cmd)
	return cmd
}
