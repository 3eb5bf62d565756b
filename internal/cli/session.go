package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/httpapi"
)

func (a *invocation) sessionCommand() *cobra.Command {
	return a.serverFlags(group(&cobra.Command{
		Use:   "session",
		Short: "Show who is logged in to the console, and end sessions",
		Long: `Show who is logged in to the console, and end sessions. A session lasts 12 hours, and a key has 20 at
most: one more ends its oldest. With --server, a key that is admin for all buckets has the sessions of
every key, any other key has its own.`,
		Example: `  dispatcher session list
  dispatcher session end 5f0c1a2b3c4d5e6f-0123456789abcdef`,
	}, a.sessionListCommand(), a.sessionEndCommand()))
}

func (a *invocation) sessionListCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "list",
		Short: "List who is logged in to the console, the newest login first",
		Long: `List who is logged in to the console, the newest login first. Sessions of keys that the configuration
lacks, or that have another secret now, are ended already and not listed.`,
		Example: `  dispatcher session list
  dispatcher session list --json | jq -r '.[] | select(.key == "deploy") | .id'`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.withAPI(cmd.Context(), a.sessionList) },
	})
}

func (a *invocation) sessionList(ctx context.Context, c *api) error {
	list, err := call(ctx, c, httpapi.ListSessions, struct{}{})
	if err != nil {
		return err
	}
	return a.printList(len(list.Sessions), "nobody is logged in to the console with a key", list.Sessions, func(w io.Writer) {
		fmt.Fprintln(w, "SESSION\tKEY\tFROM\tBEGAN\tENDS")
		for _, s := range list.Sessions {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", s.ID, s.Key, s.Address, stamp(s.Began), stamp(s.Ends))
		}
	})
}

func (a *invocation) sessionEndCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:     "end SESSION",
		Short:   "End a session of the console",
		Long:    "End a session of the console: its open pages end within five seconds, and the next page asks for a key.",
		Example: "  dispatcher session end 5f0c1a2b3c4d5e6f-0123456789abcdef",
		Args:    positional("SESSION"),
		RunE: on(a, "session", httpapi.EndSession, asking(func(args []string) httpapi.SessionName { return httpapi.SessionName{ID: args[0]} }),
			func(after *httpapi.SessionEnd) string {
				if !after.Changed {
					return "session " + after.ID + ": there is none of this id, or the key may not end it"
				}
				return "session " + after.ID + " is ended"
			}),
	})
}
