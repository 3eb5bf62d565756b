package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/shaper/operator"
)

func (a *app) bucketShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show one bucket in full",
		Long:  "Show one bucket in full. It may have left the configuration.",
		Example: `  dispatcher bucket show webhooks
  dispatcher bucket show webhooks --json`,
		Args: positional("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withStation(cmd.Context(), func(ctx context.Context, s *station) error { return a.bucketShow(ctx, s, args[0]) })
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) bucketShow(ctx context.Context, s *station, name string) error {
	if _, err := s.operator.Bucket(name).Settings(); err != nil {
		known, lookErr := s.operator.KnownBuckets(ctx)
		if lookErr != nil {
			return lookErr
		}
		if !slices.Contains(known, name) {
			return err
		}
	}
	views, err := s.bucketViews(ctx, name)
	if err != nil {
		return err
	}
	v := views[0]
	return a.print(v, func(w io.Writer) {
		row := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
		row("bucket", "%s", v.Name)
		row("rate", "%s, burst %d", v.Rate, v.Burst)
		row("depth", "%d of %d (%s)", v.Depth, v.Capacity, drainTime(v))
		row("waiting", "%d, the oldest for %s", v.Waiting, v.oldest())
		row("in flight", "%d of %d", v.InFlight, v.MaxInFlight)
		if p := v.Pool; p != nil {
			row("pool", "%s: %s, burst %d, %s; weight %d of the bucket", p.Name, dash(p.Rate), p.Burst, p.Bound(), p.Weight)
		}
		row("later", "%d: %d scheduled (at most %d), %d retries", v.Later, v.Scheduled, v.ScheduledCapacity, max(v.Later-v.Scheduled, 0))
		switch {
		case v.info.HasGroups:
			row("groups", "%d, of which %d have something to send", v.info.Groups, v.info.GroupsWait)
			row("flows", "%d", v.info.Flows)
		case v.info.HasFlows:
			row("flows", "%d, of which %d have something to send", v.info.Flows, v.info.FlowsWait)
		}
		if f := v.FlowsHeld; f != nil {
			if f.Held+f.Open+f.HalfOpen > 0 {
				row("flows held", "%d; circuit breaker open: %d, half-open: %d (counted about every 30s)", f.Held, f.Open, f.HalfOpen)
			}
			if f.Disabled > 0 {
				row("flows disabled", "%d", f.Disabled)
			}
		}
		if p := v.Pool; p != nil && p.Downstream != nil && p.Downstream.Text != "" {
			row("note", "pool %s: %s", p.Name, p.Downstream.Text)
		}
		if v.Callbacks > 0 {
			row("callbacks", "%d wait, the oldest for %s; they count against the capacity", v.Callbacks, human(v.info.OldestCallbackAge))
		}
		row("dead", "%s", deadOf(v.info))
		row("remembered", "%s, %d forgotten early", count(v.Remembered, "settled id"), v.Forgotten)
		if v.LastSlot != nil {
			row("last slot", "%s (%s)", stamp(*v.LastSlot), relative(*v.LastSlot, v.info.Now))
		}
		row("revision", "%d", v.Revision)
		for _, d := range v.Differences {
			row("differs", "%s is %s, not %s: %s", d.Setting, d.InForce, dash(d.Configured), d.Why)
		}
		for _, note := range v.Notes {
			row("note", "%s", note)
		}
	})
}

// deadOf says how many dead letters a bucket has, and how many there may be.
func deadOf(info operator.BucketInfo) string {
	text := fmt.Sprint(info.Dead)
	if info.DeadCapacity > 0 {
		text += fmt.Sprintf(" of %d", info.DeadCapacity)
	}
	text += fmt.Sprintf(", %d bytes", info.DeadBytes)
	if info.DeadMaxBytes > 0 {
		text += fmt.Sprintf(" of %d", info.DeadMaxBytes)
	}
	if dropped := info.DeadDroppedOld + info.DeadDroppedExtra; dropped > 0 {
		text += fmt.Sprintf(", %d dropped", dropped)
	}
	return text
}

// drainTime says how long the list takes to leave at the bucket's rate.
func drainTime(v bucketView) string {
	switch {
	case v.Waiting == 0:
		return "nothing waits"
	case v.info.Rate.IsZero():
		return "no rate is known"
	}
	return "drained in " + human(v.info.Rate.Per*time.Duration(v.Waiting)/time.Duration(v.info.Rate.Count)) + " at this rate"
}
