package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
)

func (a *invocation) poolCommand() *cobra.Command {
	return a.serverFlags(group(&cobra.Command{
		Use:   "pool",
		Short: "Look at pools and change them",
		Long: `Look at pools. A pool is a rate, with quotas and budgets, and a bound on
jobs in flight that several buckets share. Change a pool while it runs: all processes obey
at once, and after every restart. A pool has no pause: pause its buckets.`,
		Example: `  dispatcher pool list
  dispatcher pool show vendor --json
  dispatcher pool set vendor --rate 20/s
  dispatcher pool reset vendor
  dispatcher pool release vendor
  dispatcher bucket list --diff`,
	}, a.poolListCommand(), a.poolShowCommand(), a.poolSetCommand(), a.poolResetCommand(), a.poolReleaseCommand()))
}

// bound writes the number in flight and the bound.
func bound(v *opsview.PoolView) string {
	if v.MaxInFlight == 0 {
		return fmt.Sprint(v.InFlight)
	}
	return fmt.Sprintf("%d/%d", v.InFlight, v.MaxInFlight)
}

func (a *invocation) poolListCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "list",
		Short: "List all pools with their numbers",
		Long: `List all pools: first the configured ones, in the order of the configuration, then the
orphaned ones, which left the configuration and still have a bucket. BUCKETS are its
buckets; * marks a bucket that has something to send now and takes its share.`,
		Example: `  dispatcher pool list
  dispatcher pool list --json | jq '.[] | {name, in_flight}'`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.withAPI(cmd.Context(), a.poolList) },
	})
}

func (a *invocation) poolList(ctx context.Context, c *api) error {
	list, err := call(ctx, c, httpapi.ListPools, struct{}{})
	if err != nil {
		return err
	}
	views := list.Pools
	return a.printList(len(views), "there are no pools: declare one as [[pools]] in the configuration, and name it in the buckets that share it", views, func(w io.Writer) {
		fmt.Fprintln(w, "POOL\tRATE\tIN FLIGHT\tBUCKETS\tNOTE")
		for i := range views {
			v := &views[i]
			names := make([]string, len(v.Buckets))
			for i, b := range v.Buckets {
				if names[i] = b.Name; b.HasWork {
					names[i] += "*"
				}
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", v.Name, dash(v.Rate), bound(v), dash(strings.Join(names, ", ")), dash(strings.Join(v.Notes, "; ")))
		}
	})
}

func (a *invocation) poolShowCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "show NAME",
		Short: "Show one pool in full",
		Long:  "Show one pool in full: its settings in force, their authors, and the buckets that share it.",
		Example: `  dispatcher pool show vendor
  dispatcher pool show vendor --json`,
		Args: positional("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withAPI(cmd.Context(), func(ctx context.Context, c *api) error { return a.poolShow(ctx, c, args[0]) })
		},
	})
}

func (a *invocation) poolShow(ctx context.Context, c *api, name string) error {
	v, err := call(ctx, c, httpapi.ShowPool, httpapi.PoolName{Pool: name})
	if err != nil {
		return err
	}
	var idle map[string]string
	if slices.ContainsFunc(v.Buckets, func(b opsview.PoolBucket) bool { return !b.HasWork }) {
		if buckets, err := c.buckets(ctx); err == nil { // details of the buckets, if they are available
			idle = idleTexts(buckets, time.Now())
		}
	}
	return a.print(v, func(w io.Writer) {
		r := rows{w, time.Now()}
		r.row("pool", "%s", v.Name)
		r.row("rate", "%s, burst %d", dash(v.Rate), v.Burst)
		for i := range v.QuotaUse {
			r.row("quota", "%s", v.QuotaUse[i].Text())
		}
		for i := range v.BudgetUse {
			r.row("budget", "%s", v.BudgetUse[i].Text())
		}
		r.row("in flight", "%s", bound(v))
		r.at("last slot", v.LastSlot)
		for _, b := range v.Buckets {
			work := idle[b.Name]
			switch {
			case b.HasWork:
				work = "has work"
			case work == "":
				work = "nothing to send"
			}
			weight := "-"
			if b.Weight > 0 {
				weight = fmt.Sprint(b.Weight)
			}
			r.row("bucket", "%s: weight %s, %d in flight, %s", b.Name, weight, b.InFlight, work)
		}
		if v.Revision != nil {
			r.row("revision", "%d", *v.Revision)
		}
		r.differences(v.Differences)
		r.notes(v.Notes)
	})
}

// idleTexts explains why buckets with waiting jobs may have nothing to send now.
func idleTexts(buckets []*opsview.Bucket, now time.Time) map[string]string {
	texts := make(map[string]string)
	for _, v := range buckets {
		if v.Waiting == 0 {
			continue
		}
		why := "nothing to send now"
		switch {
		case v.Pause != nil:
			why = "paused"
		case v.Hours != nil && !v.Hours.Open:
			why = v.Hours.Text(now)
		case v.Downstream != nil && v.Downstream.Text != "":
			why = v.Downstream.Text
		}
		texts[v.Name] = fmt.Sprintf("%d waiting, %s", v.Waiting, why)
	}
	return texts
}

func (a *invocation) poolSetCommand() *cobra.Command {
	cmd := a.jsonFlag(&cobra.Command{
		Use:   "set NAME --SETTING VALUE...",
		Short: "Change settings of a pool while it runs",
		Long: `Change settings of a pool, in all processes, at once and across restarts. The change
overrides all configurations until it is reset. A new rate holds from the next slot on.
` + "`bucket list --diff`" + ` and ` + "`pool show`" + ` show each change, its author and its time.`,
		Example: `  dispatcher pool set vendor --rate 20/s
  dispatcher pool set vendor --burst 5 --max-in-flight 64
  dispatcher pool reset vendor`,
		Args: positional("NAME"),
		RunE: on(a, "pool", httpapi.SetPool, func(cmd *cobra.Command, args []string) (httpapi.PoolSettings, error) {
			settings, err := settingsOf(cmd, poolFlags)
			return httpapi.PoolSettings{PoolName: thePool(args), Settings: settings}, err
		}, func(v *opsview.PoolView) string { return a.changedText(v.Changes, "pool", v.Name) }),
	})
	addSettings(cmd, poolFlags)
	return cmd
}

func (a *invocation) poolReleaseCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "release NAME",
		Short: "End a hold or an open circuit breaker of a pool",
		Long: `End a hold or an open circuit breaker of a pool, and forget its adaptive rate. The waiting
jobs of its buckets go on at once, at the pool's pace. The receiver's next answers may slow
or hold the pool again. To release a pool that is not held is harmless.`,
		Example: `  dispatcher pool release vendor`,
		Args:    positional("NAME"),
		RunE:    on(a, "pool", httpapi.ReleasePool, asking(thePool), func(v *opsview.PoolView) string { return releasedText(v.Outcome, v.Name) }),
	})
}

func (a *invocation) poolResetCommand() *cobra.Command {
	names := make([]string, 0, len(poolFlags))
	for _, f := range poolFlags {
		names = append(names, f.Path)
	}
	return a.jsonFlag(&cobra.Command{
		Use:   "reset NAME [SETTING...]",
		Short: "Return to the configured settings",
		Long: `Remove the changes of ` + "`pool set`" + `, so that the configuration is in force again: for the
named settings, or for all. They are ` + strings.Join(names, ", ") + `.
To reset a setting that was not changed is harmless.`,
		Example: `  dispatcher pool reset vendor rate
  dispatcher pool reset vendor`,
		Args: positional("NAME", "[SETTING...]"),
		RunE: on(a, "pool", httpapi.ResetPool, asking(func(args []string) httpapi.PoolResets {
			return httpapi.PoolResets{PoolName: thePool(args), Settings: args[1:]}
		}), func(v *opsview.PoolView) string { return resetText(v.Changes) }),
	})
}
