package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

func (a *app) poolCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "pool",
		Short: "Look at pools and change them",
		Long: `Look at pools. A pool is a rate and a bound on jobs in flight that several buckets share.
Change a pool while it runs: all processes obey at once, and after every restart. A pool
has no pause: pause its buckets.`,
		Example: `  dispatcher pool list
  dispatcher pool show vendor --json
  dispatcher pool set vendor --rate 20/s
  dispatcher pool reset vendor
  dispatcher pool release vendor
  dispatcher bucket list --diff`,
	}, a.poolListCommand(), a.poolShowCommand(), a.poolSetCommand(), a.poolResetCommand(), a.poolReleaseCommand())
}

// poolView is a pool as commands print it.
type poolView struct {
	opsview.PoolView
	Notes       []string     `json:"notes"`
	Differences []difference `json:"differences"` // from the configuration here

	details operator.PoolDetails
}

// poolViews looks at the named pools. Without names it looks at all pools of the configuration,
// in its order, and then at those that only Redis knows a bucket in.
func (s *station) poolViews(ctx context.Context, names ...string) ([]poolView, error) {
	if len(names) == 0 {
		known, err := s.operator.KnownPools(ctx)
		if err != nil {
			return nil, err
		}
		for _, p := range s.config.Pools {
			names = append(names, p.Name)
		}
		for _, name := range known {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		return []poolView{}, nil
	}
	all, err := s.operator.PoolDetails(ctx, names...)
	if err != nil {
		return nil, err
	}
	views := make([]poolView, len(all))
	for i := range all {
		views[i] = s.poolView(all[i])
	}
	return views, nil
}

func (s *station) poolView(details operator.PoolDetails) poolView {
	v := poolView{Notes: []string{}, Differences: []difference{}}
	here := s.pool(details.Name)
	switch {
	case here == nil:
		v.Notes = append(v.Notes, "orphaned: not in the configuration")
	case !details.Configured:
		details.Rate, details.Burst, details.MaxInFlight, details.Quotas = here.Rate, here.Burst, here.MaxInFlight, here.Quotas
		v.Notes = append(v.Notes, "not used yet")
	case details.Revision > s.config.Revision:
		v.Notes = append(v.Notes, fmt.Sprintf("obeys revision %d, the configuration here has %d", details.Revision, s.config.Revision))
	}
	if here != nil && !slices.Contains(s.operator.Pools(), details.Name) {
		v.Notes = append(v.Notes, "no bucket of the configuration names it")
	}
	if details.Configured {
		v.Differences = append(v.Differences, s.poolDifferences("", here, &details)...)
	}
	if len(v.Differences) > 0 {
		v.Notes = append(v.Notes, "differs from the configuration here, see pool show")
	}
	v.PoolView, v.details = opsview.PoolViewOf(&details, here == nil), details
	if v.Downstream != nil && v.Downstream.Text != "" {
		v.Notes = append(v.Notes, v.Downstream.Text)
	}
	return v
}

// pool is one of the configuration here, nil if it has none of this name.
func (s *station) pool(name string) *shaper.Pool {
	for i := range s.config.Pools {
		if s.config.Pools[i].Name == name {
			return &s.config.Pools[i]
		}
	}
	return nil
}

// isPool reports whether the configuration here or Redis knows a pool.
func (s *station) isPool(ctx context.Context, name string) (bool, error) {
	if s.pool(name) != nil {
		return true, nil
	}
	known, err := s.operator.KnownPools(ctx)
	return slices.Contains(known, name), err
}

// bound writes the number in flight and the bound.
func (v *poolView) bound() string {
	if v.MaxInFlight == 0 {
		return fmt.Sprint(v.InFlight)
	}
	return fmt.Sprintf("%d/%d", v.InFlight, v.MaxInFlight)
}

func (a *app) poolListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List all pools with their numbers",
		Long: `List all pools: first the configured ones, in the order of the configuration, then the
orphaned ones, which left the configuration and still have a bucket. BUCKETS are its
buckets; * marks a bucket that has something to send now and takes its share.`,
		Example: `  dispatcher pool list
  dispatcher pool list --json | jq '.[] | {name, in_flight}'`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.withStation(cmd.Context(), a.poolList) },
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) poolList(ctx context.Context, s *station) error {
	views, err := s.poolViews(ctx)
	if err != nil {
		return err
	}
	if len(views) == 0 && !a.json {
		a.note("there are no pools: declare one as [[pools]] in the configuration, and name it in the buckets that share it")
		return nil
	}
	return a.print(views, func(w io.Writer) {
		fmt.Fprintln(w, "POOL\tRATE\tIN FLIGHT\tBUCKETS\tNOTE")
		for _, v := range views {
			names := make([]string, len(v.Buckets))
			for i, b := range v.Buckets {
				if names[i] = b.Name; b.HasWork {
					names[i] += "*"
				}
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", v.Name, dash(v.Rate), v.bound(), dash(strings.Join(names, ", ")), dash(strings.Join(v.Notes, "; ")))
		}
	})
}

func (a *app) poolShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show one pool in full",
		Long:  "Show one pool in full: its settings in force, their authors, and the buckets that share it.",
		Example: `  dispatcher pool show vendor
  dispatcher pool show vendor --json`,
		Args: positional("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withStation(cmd.Context(), func(ctx context.Context, s *station) error { return a.poolShow(ctx, s, args[0]) })
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) poolShow(ctx context.Context, s *station, name string) error {
	if known, err := s.isPool(ctx, name); err != nil || !known {
		if err == nil {
			err = fmt.Errorf("%w %q", operator.ErrUnknownPool, name)
		}
		return err
	}
	views, err := s.poolViews(ctx, name)
	if err != nil {
		return err
	}
	v := views[0]
	return a.print(v, func(w io.Writer) {
		row := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
		row("pool", "%s", v.Name)
		row("rate", "%s, burst %d", dash(v.Rate), v.Burst)
		if len(v.Quotas) > 0 {
			row("quotas", "%s", strings.Join(v.Quotas, ", "))
		}
		row("in flight", "%s", v.bound())
		if v.LastSlot != nil {
			row("last slot", "%s (%s)", stamp(*v.LastSlot), relative(*v.LastSlot, v.details.Now))
		}
		for _, b := range v.Buckets {
			work := "nothing to send"
			if b.HasWork {
				work = "has work"
			}
			weight := "-"
			if b.Weight > 0 {
				weight = fmt.Sprint(b.Weight)
			}
			row("bucket", "%s: weight %s, %d in flight, %s", b.Name, weight, b.InFlight, work)
		}
		if v.Revision != nil {
			row("revision", "%d", *v.Revision)
		}
		for _, d := range v.Differences {
			row("differs", "%s is %s, not %s: %s", d.Setting, d.InForce, dash(d.Configured), d.Why)
		}
		for _, note := range v.Notes {
			row("note", "%s", note)
		}
	})
}

// poolDifferences lists the settings of a pool that differ from the configuration here: its overrides,
// and settings of another configuration. bucket is a bucket of the pool that reports them,
// or "".
func (s *station) poolDifferences(bucket string, here *shaper.Pool, there *operator.PoolDetails) []difference {
	var list []difference
	inForce := shaper.Bucket{Rate: there.Rate, Burst: there.Burst, MaxInFlight: there.MaxInFlight}
	for _, setting := range shaper.PoolSettings() {
		d := difference{Bucket: bucket, Setting: string(setting), InForce: settingOf(inForce, setting)}
		if bucket != "" {
			d.Setting = "pool." + d.Setting
		}
		if here != nil {
			d.Configured = settingOf(shaper.Bucket{Rate: here.Rate, Burst: here.Burst, MaxInFlight: here.MaxInFlight}, setting)
		}
		at := slices.IndexFunc(there.Overrides, func(p operator.Override) bool { return p.Setting == setting })
		switch {
		case at >= 0:
			override := there.Overrides[at]
			if here == nil {
				d.Configured = override.Configured
			}
			d.By, d.At, d.Why = override.By, instant(override.At), setBy(override, there.Now)
		case here == nil, d.Configured == d.InForce:
			continue
		default:
			d.Why = s.otherRevision(there.Revision)
		}
		list = append(list, d)
	}
	return list
}

// setBy names the author and the time of an override.
func setBy(override operator.Override, now time.Time) string {
	return line(fmt.Sprintf("set %s by %s", relative(override.At, now), override.By), 200)
}
