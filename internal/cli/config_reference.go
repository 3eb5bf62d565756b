package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/config"
)

func (a *invocation) configReferenceCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "reference",
		Short: "Print every key, with its default and its meaning",
		Long: `Print every key of this version as TOML, with its default, its bounds and its meaning. Copy what
you need into your file: keys that it leaves out have their defaults.`,
		Example: `  dispatcher config reference | less
  dispatcher config reference | grep max_in_flight`,
		Args: positional(),
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprint(a.out, config.Reference)
			return err
		},
	}
}
