package cli

import "github.com/spf13/cobra"

// Commands returns the command trees of the dispatcher and of the producer, for the manual. They are there to be read, not to be run.
func Commands() []*cobra.Command {
	dispatcher, producer := &invocation{program: "dispatcher"}, &invocation{program: "producer"}
	roots := []*cobra.Command{dispatcher.dispatcherCommand(), producer.producerCommand()}
	dispatcher.prepare(roots[0])
	producer.prepare(roots[1])
	return roots
}
