package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/internal/setting"
	"github.com/tundish-io/tundish/shaper"
)

// parts are the commands on the flows of a bucket, or on its groups.
type parts struct {
	*invocation
	opsview.Kind
	group string // the group of a flow, from --group
}

// text is a help, in which $ stands for the kind.
func (p *parts) text(help string) string { return strings.ReplaceAll(help, "$", p.Name) }

// arg is the argument that names one.
func (p *parts) arg() string { return strings.ToUpper(p.Name) }

// query names the flow or group, and the group of a flow if the command line names one.
func (p *parts) query(cmd *cobra.Command, name string) url.Values {
	query := url.Values{p.Name: {name}}
	if cmd.Flags().Changed("group") {
		query.Set("group", p.group)
	}
	return query
}

// fault says what to do about an error of a flow or a group.
func (p *parts) fault(err error, bucket, name string) error {
	answered, ok := errors.AsType[*problem](err)
	switch {
	case !ok:
		return err
	case answered.Code == "unknown-flow", answered.Code == "unknown-group":
		return fail(exitNotFound, "bucket %q has no %s %q now: see `%s %s list %s`, or give --create if its first job is still to come",
			bucket, p.Name, line(name, 200), p.program, p.Name, bucket)
	case len(answered.Errors) == 1 && answered.Errors[0].Field == "group" && p.Name == "flow" && p.group == "":
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

// settingsText says the settings in one line.
func settingsText(s *opsview.Settings) string {
	rows := settingRows(s)
	texts := make([]string, len(rows))
	for i, row := range rows {
		texts[i] = row[0] + " " + row[1]
	}
	return strings.Join(texts, ", ")
}

func (p *parts) listCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "list BUCKET",
		Short: p.text("List the $s of a bucket"),
		Long:  p.text("List the $s of a bucket that have jobs or settings of their own, in no order."),
		Example: p.text(`  dispatcher $ list webhooks
  dispatcher $ list webhooks --limit 10000 --json`),
		Args: positional("BUCKET"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 {
				return wrongUsage(cmd, "--limit is 1 or more")
			}
			return p.withAPI(cmd.Context(), func(ctx context.Context, c *api) error {
				query := url.Values{}
				if cmd.Flags().Changed("group") {
					query.Set("group", p.group)
				}
				return p.list(ctx, c, args[0], query, limit)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 1000, "list at most this `number`")
	return cmd
}

func (p *parts) list(ctx context.Context, c *api, bucket string, query url.Values, limit int) error {
	views, cursor := []opsview.View{}, ""
	for again := true; again && len(views) < limit; again = cursor != "" {
		var page struct {
			Flows, Groups []opsview.View
			Next          string
		}
		query.Set("cursor", cursor)
		query.Set("limit", fmt.Sprint(min(limit-len(views), 1000)))
		if err := c.call(ctx, http.MethodGet, apiPath("buckets", bucket, p.Name+"s"), query, nil, &page); err != nil {
			return p.fault(err, bucket, "")
		}
		views, cursor = slices.Concat(views, page.Flows, page.Groups), page.Next
	}
	if len(views) >= limit && (cursor != "" || len(views) > limit) {
		views = views[:limit]
		p.note("there are more than %d %ss: see --limit", limit, p.Name)
	}
	if len(views) == 0 && !p.json {
		p.note("bucket %q has no %ss that have jobs or settings of their own", bucket, p.Name)
		return nil
	}
	return p.print(views, func(w io.Writer) { table(w, views, time.Now()) })
}

// table has a column for groups and one for flows where there are any.
func table(w io.Writer, views []opsview.View, now time.Time) {
	columns := []struct {
		title string
		of    func(opsview.View) *string
	}{
		{"GROUP", func(v opsview.View) *string { return v.Group }}, {"FLOW", func(v opsview.View) *string { return v.Flow }},
	}
	for _, column := range columns {
		if slices.ContainsFunc(views, func(v opsview.View) bool { return column.of(v) != nil }) {
			fmt.Fprintf(w, "%s\t", column.title)
		}
	}
	fmt.Fprintln(w, "WAITING\tIN FLIGHT\tSETTINGS\tNOTE")
	for _, v := range views {
		for _, column := range columns {
			if name := column.of(v); name != nil {
				fmt.Fprintf(w, "%s\t", quoted(*name))
			}
		}
		fmt.Fprintf(w, "%d\t%d\t%s\t%s\n", v.Waiting, v.InFlight, dash(settingsText(&v.Settings)), dash(strings.Join(partNotes(&v, now), "; ")))
	}
}

// partNotes say what keeps a flow or a group from sending.
func partNotes(v *opsview.View, now time.Time) []string {
	var notes []string
	if v.Pause != nil {
		notes = append(notes, v.Pause.Text(now))
	}
	if d := v.Disabled; d != nil {
		notes = append(notes, (&shaper.Disabled{Since: d.Since, Reason: d.Reason}).String())
	}
	if v.Downstream != nil && v.Downstream.Text != "" {
		notes = append(notes, v.Downstream.Text)
	}
	return notes
}

func (p *parts) printOne(v opsview.View) error {
	return p.print(v, func(w io.Writer) {
		row := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
		now := time.Now()
		if v.Group != nil {
			row("group", "%s", quoted(*v.Group))
		}
		if v.Flow != nil {
			row("flow", "%s", quoted(*v.Flow))
		}
		row("waiting", "%d", v.Waiting)
		row("in flight", "%d", v.InFlight)
		if v.Turn != nil {
			row("turn", "%s (%s)", stamp(*v.Turn), relative(*v.Turn, now))
		}
		for _, setting := range settingRows(&v.Settings) {
			row(setting[0], "%s", setting[1])
		}
		if v.Unknown {
			row("note", "%s", p.unknownText(&v))
		}
		for _, note := range partNotes(&v, now) {
			row("note", "%s", note)
		}
	})
}

// unknownText says of a flow or group of which Redis holds nothing that its name may be wrong.
func (p *parts) unknownText(v *opsview.View) string {
	name := deref(v.Group)
	if p.Name == "flow" {
		name = deref(v.Flow)
	}
	return fmt.Sprintf("nothing is known of %s %s: no job of it waits or is in flight, and nothing is set of it. Is the name right?", p.Name, quoted(name))
}

// secretsText says how many secrets a flow has, each with its number and its fingerprint.
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
