package cli

import "github.com/spf13/cobra"

// DispatcherCommand is the tree of the dispatcher's commands.
func DispatcherCommand() *cobra.Command {
	return (&invocation{program: "dispatcher"}).dispatcherCommand()
}
