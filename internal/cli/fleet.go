package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper/fleet"
)

func (a *invocation) fleetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "List the processes that run on this Redis",
		Long: `List the processes that run: dispatchers, producers, and programs that embed Tundish. Each sends
a heartbeat every five seconds; a killed process leaves the list within 15 seconds. BUSY is the number
of jobs that it delivers now. In the last minute 99 % of departures were at most LATE behind their slot.`,
		Example: `  dispatcher fleet
  dispatcher fleet --json | jq -r '.processes[] | select(.works).host'`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.withAPI(cmd.Context(), a.fleet) },
	}
	a.jsonFlag(cmd)
	return a.serverFlags(cmd)
}

func (a *invocation) fleet(ctx context.Context, c *api) error {
	v, err := call(ctx, c, httpapi.ShowFleet, httpapi.FleetQuery{})
	if err != nil {
		return err
	}
	return a.printList(len(v.Processes), "no process sends a heartbeat: start one with `dispatcher run`", v, func(w io.Writer) {
		fmt.Fprintln(w, "PROGRAM\tHOST\tREVISION\tBUCKETS\tBUSY\tLATE\tSINCE\tHEARTBEAT\tVERSION")
		for i := range v.Processes {
			p := &v.Processes[i]
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%s\t%s\t%s ago\t%s\n", p.Name, p.Host, p.Revision, p.Buckets, p.Busy, latenessText(p),
				stamp(p.Since), opsview.Human(v.Now.Sub(p.LastHeartbeat)), dash(p.Version))
		}
		if notices := fleet.Notices(v.Processes); len(notices) > 0 {
			fmt.Fprintf(w, "\n%s\n", strings.Join(notices, "\n"))
		}
	})
}

// latenessText returns how late the departures of a process were.
func latenessText(p *fleet.Process) string {
	if p.P99Lateness == 0 {
		return "-"
	}
	return time.Duration(p.P99Lateness * float64(time.Second)).String()
}

// bars are the heights of a picture, from nothing on.
var bars = []rune(" ▁▂▃▄▅▆▇█")

// picture draws numbers as a line of bars. The full height is most, or the largest number if that is more.
func picture(numbers []int64, most float64) string {
	for _, n := range numbers {
		most = max(most, float64(n))
	}
	line := make([]rune, len(numbers))
	for i, n := range numbers {
		height := 0
		if n > 0 {
			height = max(1, int(float64(n)/most*float64(len(bars)-1)+0.5)) //nolint:mnd // to the nearest
		}
		line[i] = bars[height]
	}
	return string(line)
}
