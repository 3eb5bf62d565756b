package cli

import "github.com/spf13/cobra"

func (a *invocation) configCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "config",
		Short: "Check the configuration, print the values in force, or every key",
		Long: `Check the configuration, or print the values in force: defaults, then the file, then
the TUNDISH_ variables of the environment, the later over the earlier. Or print every key
there is. These commands do not talk to Redis.`,
		Example: `  dispatcher config check
  dispatcher config print --config /etc/tundish/config.toml
  dispatcher config reference`,
	}, a.configCheckCommand(), a.configPrintCommand(), a.configReferenceCommand())
}
