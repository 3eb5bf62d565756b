package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/shaper"
)

func (a *app) flowCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "flow",
		Short: "Look at the flows of a bucket, pause, change or purge one",
		Long: `Look at the flows of a bucket: the jobs of one key, such as a tenant or a receiving
host. Pause one, give it settings of its own, or purge it, while the others run: all
processes obey at once, and after every restart. A name of a flow may be any text.`,
		Example: `  dispatcher flow list webhooks
  dispatcher flow show webhooks acme
  dispatcher flow pause webhooks acme --reason "their server is down"
  dispatcher flow set webhooks acme --rate 5/s --weight 2
  dispatcher flow reset webhooks acme`,
	}, a.flowListCommand(), a.flowShowCommand(), a.flowPauseCommand(), a.flowResumeCommand(),
		a.flowSetCommand(), a.flowResetCommand(), a.flowPurgeCommand())
}

// flowView is a flow as it is shown.
type flowView struct {
	Flow     string           `json:"flow"`
	Waiting  int64            `json:"waiting"`
	InFlight int64            `json:"in_flight"`
	Turn     *time.Time       `json:"turn,omitempty"` // when it is looked at next
	Pause    *pauseView       `json:"pause,omitempty"`
	Settings flowSettingsView `json:"settings"` // its own
}

// flowSettingsView is without secrets.
type flowSettingsView struct {
	Rate        string            `json:"rate,omitempty"`
	Burst       *int64            `json:"burst,omitempty"`
	Capacity    *int64            `json:"capacity,omitempty"`
	MaxInFlight *int64            `json:"max_in_flight,omitempty"`
	Weight      *int64            `json:"weight,omitempty"`
	URL         string            `json:"url,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	Secrets     int               `json:"secrets_count,omitempty"`
}

func viewFlow(info *shaper.FlowInfo) flowView {
	own := &info.Own
	v := flowView{
		Flow: info.Flow, Waiting: info.Waiting, InFlight: info.InFlight, Pause: viewPause(own.Pause),
		Settings: flowSettingsView{
			Burst: own.Burst, Capacity: own.Capacity, MaxInFlight: own.MaxInFlight, Weight: own.Weight,
			URL: own.URL, Headers: own.Headers, Secrets: len(own.Secrets),
		},
	}
	if !own.Rate.IsZero() {
		v.Settings.Rate = own.Rate.String()
	}
	if !info.Turn.IsZero() {
		turn := info.Turn.UTC()
		v.Turn = &turn
	}
	return v
}

// rows are the settings as names and values.
func (s *flowSettingsView) rows() [][2]string {
	var rows [][2]string
	add := func(name shaper.FlowSetting, value string) { rows = append(rows, [2]string{string(name), value}) }
	if s.Rate != "" {
		add(shaper.FlowRate, s.Rate)
	}
	for _, n := range []struct {
		name  shaper.FlowSetting
		value *int64
	}{
		{shaper.FlowBurst, s.Burst}, {shaper.FlowCapacity, s.Capacity}, {shaper.FlowMaxInFlight, s.MaxInFlight}, {shaper.FlowWeight, s.Weight},
	} {
		if n.value != nil {
			add(n.name, fmt.Sprint(*n.value))
		}
	}
	if s.URL != "" {
		add(shaper.FlowURL, line(s.URL, 200))
	}
	if len(s.Headers) > 0 {
		add(shaper.FlowHeaders, fmt.Sprint(len(s.Headers)))
	}
	if s.Secrets > 0 {
		add(shaper.FlowSecrets, fmt.Sprint(s.Secrets))
	}
	return rows
}

// text says the settings in one line.
func (s *flowSettingsView) text() string {
	rows := s.rows()
	parts := make([]string, len(rows))
	for i, row := range rows {
		parts[i] = row[0] + " " + row[1]
	}
	return strings.Join(parts, ", ")
}

func (a *app) flowListCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "list BUCKET",
		Short: "List the flows of a bucket",
		Long:  "List the flows of a bucket that have jobs or settings of their own, in no order.",
		Example: `  dispatcher flow list webhooks
  dispatcher flow list webhooks --limit 10000 --json`,
		Args: positional("BUCKET"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 {
				return wrongUsage(cmd, "--limit is 1 or more")
			}
			return a.withStation(cmd.Context(), func(ctx context.Context, s *station) error { return a.flowList(ctx, s, args[0], limit) })
		},
	}
	a.jsonFlag(cmd)
	cmd.Flags().IntVar(&limit, "limit", 1000, "list at most this `number`")
	return cmd
}

func (a *app) flowList(ctx context.Context, s *station, bucket string, limit int) error {
	views, cursor, now := []flowView{}, "", time.Now()
	for again := true; again && len(views) < limit; again = cursor != "" {
		infos, next, err := s.client.Control(operator()).Flows(ctx, bucket, cursor, limit-len(views))
		if err != nil {
			return flowFault(err)
		}
		for i := range infos {
			views = append(views, viewFlow(&infos[i]))
		}
		cursor = next
	}
	if len(views) >= limit && (cursor != "" || len(views) > limit) {
		views = views[:limit]
		a.note("there are more than %d flows: see --limit", limit)
	}
	if len(views) == 0 && !a.json {
		a.note("bucket %q has no flows that have jobs or settings of their own", bucket)
		return nil
	}
	return a.print(views, func(w io.Writer) {
		fmt.Fprintln(w, "FLOW\tWAITING\tIN FLIGHT\tSETTINGS\tNOTE")
		for _, v := range views {
			note := ""
			if v.Pause != nil {
				note = v.Pause.text(now)
			}
			fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\n", quoted(v.Flow), v.Waiting, v.InFlight, dash(v.Settings.text()), dash(note))
		}
	})
}

// quoted is the name of a flow, which may be any text, safe to show.
func quoted(flow string) string {
	if flow == "" {
		return `""`
	}
	return line(flow, 80)
}

func (a *app) flowShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show BUCKET FLOW",
		Short: "Show one flow",
		Long:  "Show one flow: what waits in it, whether it is paused, and the settings that it has of its own.",
		Example: `  dispatcher flow show webhooks acme
  dispatcher flow show webhooks acme --json`,
		Args: positional("BUCKET", "FLOW"),
	}
	cmd.RunE = a.onFlow(func(context.Context, *shaper.Control, string, string) (string, error) { return "", nil })
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) printFlow(v flowView) error {
	return a.print(v, func(w io.Writer) {
		row := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
		now := time.Now()
		row("flow", "%s", quoted(v.Flow))
		row("waiting", "%d", v.Waiting)
		row("in flight", "%d", v.InFlight)
		if v.Turn != nil {
			row("turn", "%s (%s)", stamp(*v.Turn), relative(*v.Turn, now))
		}
		for _, setting := range v.Settings.rows() {
			row(setting[0], "%s", setting[1])
		}
		if v.Pause != nil {
			row("note", "%s", v.Pause.text(now))
		}
	})
}
