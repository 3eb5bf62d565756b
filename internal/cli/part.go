package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/internal/setting"
	"github.com/tundish-io/tundish/shaper"
)

// viewOf is the pointer of a flow or group as JSON shows it.
type viewOf[V any] interface {
	*V
	opsview.View
}

// parts are the commands on the flows of a bucket, or on its groups.
type parts[N httpapi.PartName, V any, P viewOf[V]] struct {
	*invocation
	kind     string               // "flow" or "group"
	settings []shaper.FlowSetting // that one may have of its own

	ops  httpapi.PartOperations[N, V]
	of   func(bucket, name string, group *string) N
	page func(ctx context.Context, c *api, bucket string, group *string, page httpapi.PartPage) (views []*V, next string, err error)

	group string // the group of a flow, from --group

	listHelp, listExample string // of the flags that only one of both has
	listFlags             func(cmd *cobra.Command)
	narrowed              func() string // the filter of the flags in words, "" none
}

// text returns a help text, in which $ stands for the kind.
func (p *parts[N, V, P]) text(help string) string { return strings.ReplaceAll(help, "$", p.kind) }

// arg is the argument that names one.
func (p *parts[N, V, P]) arg() string { return strings.ToUpper(p.kind) }

// groupOf is the group of a flow, nil if the command line names none.
func (p *parts[N, V, P]) groupOf(cmd *cobra.Command) *string {
	if cmd.Flags().Changed("group") {
		return &p.group
	}
	return nil
}

// one returns the input for the flow or group after BUCKET.
func (p *parts[N, V, P]) one(cmd *cobra.Command, args []string) N {
	return p.of(args[0], args[1], p.groupOf(cmd))
}

// fault adds what to do about an error of a flow or a group.
func (p *parts[N, V, P]) fault(err error, bucket, name string) error {
	answered, ok := errors.AsType[*problem](err)
	switch {
	case !ok:
		return err
	case answered.Code == "unknown-flow", answered.Code == "unknown-group":
		return fail(exitNotFound, "bucket %q has no %s %q now: see `%s %s list %s`, or give --create if its first job is still to come",
			bucket, p.kind, line(name, 200), p.program, p.kind, bucket)
	case len(answered.Errors) == 1 && answered.Errors[0].Field == "group" && p.kind == "flow" && p.group == "":
		return fail(exitUsage, "bucket %q: its flows are in groups: say with --group in which the flow is", bucket)
	}
	return named(err, "bucket", bucket)
}

// settingRows are the settings as names and values.
func settingRows(s *opsview.Settings) [][2]string {
	rows := setting.Given(&s.OwnBounds)
	add := func(name shaper.FlowSetting, value string) { rows = append(rows, [2]string{string(name), value}) }
	if s.URL != "" {
		add(shaper.FlowURL, line(s.URL, 200))
	}
	if len(s.Headers) > 0 {
		add(shaper.FlowHeaders, line(strings.Join(s.Headers, ", "), 200))
	}
	if s.Secrets > 0 {
		add(shaper.FlowSecrets, secretsText(s))
	}
	return rows
}

// settingsText formats the settings in one line.
func settingsText(s *opsview.Settings) string {
	rows := settingRows(s)
	texts := make([]string, len(rows))
	for i, row := range rows {
		texts[i] = row[0] + " " + row[1]
	}
	return strings.Join(texts, ", ")
}

func (p *parts[N, V, P]) listCommand() *cobra.Command {
	var limit int
	var after string
	cmd := &cobra.Command{
		Use:   "list BUCKET",
		Short: p.text("List the $s of a bucket"),
		Long:  p.text("List the $s of a bucket that have jobs or settings of their own, in no order" + p.listHelp),
		Example: p.text(`  dispatcher $ list webhooks
  dispatcher $ list webhooks --limit 10000 --json` + p.listExample),
		Args: positional("BUCKET"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 {
				return wrongUsage(cmd, "--limit is 1 or more")
			}
			return p.withAPI(cmd.Context(), func(ctx context.Context, c *api) error {
				return p.list(ctx, c, args[0], p.groupOf(cmd), after, limit)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 1000, "list at most this `number`")
	cmd.Flags().StringVar(&after, "after", "", "continue after this `cursor` of an earlier list")
	if p.listFlags != nil {
		p.listFlags(cmd)
	}
	return cmd
}

func (p *parts[N, V, P]) list(ctx context.Context, c *api, bucket string, group *string, cursor string, limit int) error {
	views := []opsview.View{}
	for again := true; again && len(views) < limit; again = cursor != "" {
		some, next, err := p.page(ctx, c, bucket, group, httpapi.PartPage{Cursor: cursor, Limit: min(limit-len(views), 1000)})
		if err != nil {
			return p.fault(err, bucket, "")
		}
		for _, v := range some {
			views = append(views, P(v))
		}
		cursor = next
	}
	switch {
	case len(views) > limit:
		views = views[:limit]
		p.note("there are more than %d %ss: see --limit", limit, p.kind)
	case cursor != "":
		p.note("there may be more %ss: --after %s, or see --limit", p.kind, cursor)
	}
	if len(views) == 0 && !p.json {
		asked := ""
		if p.narrowed != nil {
			asked = p.narrowed()
		}
		if asked != "" {
			p.note("bucket %q has no %s %s", bucket, p.kind, asked)
		} else {
			p.note("bucket %q has no %ss that have jobs or settings of their own", bucket, p.kind)
		}
		return nil
	}
	return p.print(views, func(w io.Writer) { table(w, views, time.Now()) })
}

// table prints the views, with a column for groups and one for flows if there are any.
func table(w io.Writer, views []opsview.View, now time.Time) {
	for _, name := range namesOf(views[0]) { // all are of the same bucket
		fmt.Fprintf(w, "%s\t", strings.ToUpper(name[0]))
	}
	fmt.Fprintln(w, "WAITING\tIN FLIGHT\tLEFT\tSETTINGS\tNOTE")
	for _, v := range views {
		for _, name := range namesOf(v) {
			fmt.Fprintf(w, "%s\t", quoted(name[1]))
		}
		own, notes := v.Own(), partNotes(v, now)
		if note := v.Alike().AllowanceNote(); note != "" {
			notes = append(notes, note)
		}
		fmt.Fprintf(w, "%d\t%d\t%s\t%s\t%s\n", v.Alike().Waiting, v.Alike().InFlight, dash(v.Alike().Left()), dash(settingsText(&own)), dash(strings.Join(notes, "; ")))
	}
}

// namesOf are "group" and "flow" with the names of these.
func namesOf(v opsview.View) (rows [][2]string) {
	group, flow := v.Names()
	if group != nil {
		rows = append(rows, [2]string{"group", *group})
	}
	if flow != nil {
		rows = append(rows, [2]string{"flow", *flow})
	}
	return rows
}

// partNotes returns what keeps a flow or a group from sending.
func partNotes(v opsview.View, now time.Time) []string {
	var notes []string
	if pause := v.Alike().Pause; pause != nil {
		notes = append(notes, pause.Text(now))
	}
	return append(notes, v.Notes()...)
}

func (p *parts[N, V, P]) printOne(v opsview.View) error {
	return p.print(v, func(w io.Writer) {
		r := rows{w, time.Now()}
		shown, own := v.Alike(), v.Own()
		for _, name := range namesOf(v) {
			r.row(name[0], "%s", quoted(name[1]))
		}
		r.row("waiting", "%d", shown.Waiting)
		r.row("in flight", "%d", shown.InFlight)
		r.at("turn", shown.Turn)
		for i := range shown.Quotas {
			r.row("quota", "%s", shown.Quotas[i].Text())
		}
		for i := range shown.Budgets {
			r.row("budget", "%s", shown.Budgets[i].Text())
		}
		for _, setting := range settingRows(&own) {
			r.row(setting[0], "%s", setting[1])
		}
		if shown.Unknown {
			r.row("note", "%s", p.unknownText(v))
		}
		r.notes(partNotes(v, r.now))
	})
}

// unknownText returns a note for a flow or group without anything in Redis: it is idle, or its name is wrong, which Redis cannot distinguish.
func (p *parts[N, V, P]) unknownText(v opsview.View) string {
	names := namesOf(v)
	return fmt.Sprintf("%s %s has no jobs and no settings of its own: either its last job has left, as an idle %s is forgotten, or the name is not right", p.kind, quoted(names[len(names)-1][1]), p.kind)
}

// secretsText returns how many secrets a flow has, each with its number and its fingerprint.
func secretsText(s *opsview.Settings) string {
	if len(s.SecretFingerprints) == 0 {
		return strconv.Itoa(s.Secrets)
	}
	numbered := make([]string, len(s.SecretFingerprints))
	for i, print := range s.SecretFingerprints {
		numbered[i] = fmt.Sprint(i+1, " ", print)
	}
	return fmt.Sprintf("%d: %s", s.Secrets, strings.Join(numbered, ", "))
}
