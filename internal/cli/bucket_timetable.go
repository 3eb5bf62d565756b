package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/httpapi"
)

func (a *invocation) bucketTimetableCommand() *cobra.Command {
	var ahead time.Duration
	cmd := &cobra.Command{
		Use:   "timetable BUCKET",
		Short: "Show when a bucket is open and at which rate, and when its schedules fire",
		Long: `Show when a bucket is open and at which rate, by its drain windows and its rate calendar, and when its
schedules fire. What holds it up besides is told by "dispatcher bucket why".`,
		Example: `  dispatcher bucket timetable nightly
  dispatcher bucket timetable nightly --for 720h --json | jq '.stretches[] | select(.open)'`,
		Args: positional("BUCKET"),
	}
	const week = 7 * 24 * time.Hour
	cmd.Flags().DurationVar(&ahead, "for", week, "how far ahead, up to 840h")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withAPI(cmd.Context(), func(ctx context.Context, c *api) error {
			query := httpapi.TimetableQuery{BucketName: theBucket(args), From: time.Now().Truncate(time.Second)}
			query.Until = query.From.Add(ahead)
			v, err := call(ctx, c, httpapi.ShowTimetable, query)
			if err != nil {
				return err
			}
			return a.print(v, func(w io.Writer) { printTimetable(w, v) })
		})
	}
	a.jsonFlag(cmd)
	return cmd
}

// printTimetable writes a line for each stretch, with the fires in it.
func printTimetable(w io.Writer, v *httpapi.Timetable) {
	fmt.Fprintln(w, "FROM\tUNTIL\tRATE\tFIRES")
	fires := v.Fires
	for _, s := range v.Stretches {
		n := slices.IndexFunc(fires, func(f httpapi.ScheduleFire) bool { return !f.At.Before(s.Until) })
		if n < 0 {
			n = len(fires)
		}
		rate := cmp.Or(s.Rate, "closed")
		if s.UntilEmpty {
			rate += " until empty"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", stamp(s.From), stamp(s.Until), rate, firesText(fires[:n]))
		fires = fires[n:]
	}
}

// firesText returns how often each schedule fires, and when the first time.
func firesText(fires []httpapi.ScheduleFire) string {
	var texts []string
	counts := map[string]int{}
	for _, f := range fires {
		counts[f.Schedule]++
	}
	for _, f := range fires {
		switch n := counts[f.Schedule]; {
		case n == 1:
			texts = append(texts, f.Schedule+" "+f.At.UTC().Format("15:04:05"))
		case n > 1:
			texts = append(texts, fmt.Sprintf("%s %d times from %s on", f.Schedule, n, f.At.UTC().Format("15:04:05")))
		}
		delete(counts, f.Schedule)
	}
	return dash(strings.Join(texts, ", "))
}
