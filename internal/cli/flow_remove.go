package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/internal/progress"
)

func flowRemoveCommand(p *flowParts) *cobra.Command {
	var yes, dryRun bool
	cmd := &cobra.Command{
		Use:   "remove BUCKET " + p.arg(),
		Short: p.text("Drop all that is kept of one $"),
		Long: p.text(`Drop all that is kept of one $, for good: its waiting jobs, its dead letters, its kept
results, and then its settings, its pause, its hold or open circuit breaker, and that it is
disabled. There is no way back. Jobs in flight are not touched: they end as they would have.
Jobs that come meanwhile may stay. The command first counts, and asks for the $'s name;
without a terminal, give --yes instead. With --dry-run it only counts. If it is interrupted,
run it again.`),
		Example: p.text(`  dispatcher $ remove webhooks acme --dry-run
  dispatcher $ remove webhooks acme
  dispatcher $ remove webhooks acme --yes --json`),
		Args: positional("BUCKET", p.arg()),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !yes && !dryRun && !isTerminal(p.in) {
			return wrongUsage(cmd, "this drops all that is kept of the flow: confirm with --yes, as there is no terminal to ask")
		}
		return p.withAPI(cmd.Context(), func(ctx context.Context, c *api) error {
			return p.fault(p.removeFlow(ctx, c, p.one(cmd, args), yes, dryRun), args[0], args[1])
		})
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only count what would be dropped")
	return cmd
}

// removeFlow removes a flow, after it has counted the flow's stored data and the user has confirmed.
func (a *invocation) removeFlow(ctx context.Context, c *api, of httpapi.FlowName, yes, dryRun bool) error {
	if dryRun || !yes {
		counted, err := a.removal(ctx, c, httpapi.FlowRemove{FlowName: of, DryRun: true})
		if err != nil {
			return err
		}
		if dryRun {
			return a.print(counted, func(w io.Writer) { fmt.Fprintf(w, "this would drop %s; nothing is changed\n", removedText(counted)) })
		}
		what := fmt.Sprintf("This drops all that is kept of flow %s of bucket %q, for good: %s.", quoted(of.Flow), of.Bucket, removedText(counted))
		if err := a.confirm(what, "flow", of.Flow, "nothing is dropped"); err != nil {
			return err
		}
	}
	removed, err := a.removal(ctx, c, httpapi.FlowRemove{FlowName: of, Confirm: &of.Flow})
	if err != nil {
		if removed.Waiting > 0 || removed.Dead > 0 || removed.Results > 0 {
			a.note("dropped before it failed: %s; run the command again", removedText(removed))
		}
		return err
	}
	return a.print(removed, func(w io.Writer) { fmt.Fprintf(w, "dropped: %s\n", removedText(removed)) })
}

// removal repeats the request until the removal, or the count, has ended, and shows its progress.
func (a *invocation) removal(ctx context.Context, c *api, in httpapi.FlowRemove) (*opsview.RemovedFlow, error) {
	sum := &opsview.RemovedFlow{Bucket: in.Bucket, Group: in.Group, Flow: in.Flow, Own: []string{}}
	var line atomic.Value
	line.Store(removedText(sum))
	watched, hide := context.WithCancel(ctx)
	var showing sync.WaitGroup
	showing.Go(func() {
		progress.Show(watched, a.err, time.Minute, func() string { text, _ := line.Load().(string); return text })
	})
	defer func() { hide(); showing.Wait() }()
	for {
		part, err := call(ctx, c, httpapi.RemoveFlow, in)
		if err != nil {
			return sum, err
		}
		sum.Waiting, sum.Dead, sum.Results = sum.Waiting+part.Waiting, sum.Dead+part.Dead, sum.Results+part.Results
		sum.Own, sum.InFlight = append(sum.Own, part.Own...), part.InFlight
		line.Store(removedText(sum))
		if in.Cursor = part.Next; part.Next == "" {
			return sum, nil
		}
	}
}

// removedText returns what a removal dropped, or would drop, in one line.
func removedText(r *opsview.RemovedFlow) string {
	text := fmt.Sprintf("%s, %s, %s", opsview.Count(r.Waiting, "waiting job"), opsview.Count(r.Dead, "dead letter"), opsview.Count(r.Results, "kept result"))
	if len(r.Own) > 0 {
		text += ", its " + strings.Join(r.Own, ", ")
	}
	if r.InFlight > 0 {
		text += fmt.Sprintf("; in flight, and left: %s", opsview.Count(r.InFlight, "job"))
	}
	return text
}
