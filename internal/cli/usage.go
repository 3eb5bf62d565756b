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
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper/operator"
)

// usageFlags are the flags of the command usage.
type usageFlags struct {
	from, to, flow, group, caller, model string
	by                                   []string
	days                                 int
}

func (a *invocation) usageCommand() *cobra.Command {
	var f usageFlags
	cmd := &cobra.Command{
		Use:   "usage BUCKET",
		Short: "Sum up the tokens that a bucket's calls of language models used",
		Long: `Sum up the calls of language models of a bucket, and their tokens: the tokens that the responses
reported, or else estimates. CHARGED is what counts against budgets of tokens: more where a budget
counts the maximum of the request. "claude (for gpt-5)" are calls for gpt-5 that the model claude
of a fallback answered. Days are in UTC, and the last 31 are kept. A call counts on the day on
which its job was claimed. "(other)" are calls above the bound of a day, which has 900 combinations
of caller, model and flow; one caller alone has half.`,
		Example: `  dispatcher usage openai
  dispatcher usage openai --by flow --days 31
  dispatcher usage openai --by caller,model --from 2026-11-01 --to 2026-11-26
  dispatcher usage openai --flow acme --model gpt-4o-mini --json | jq .total`,
		Args: positional("BUCKET"),
		RunE: func(cmd *cobra.Command, args []string) error {
			query, err := f.query(cmd, args)
			if err != nil {
				return err
			}
			return a.withAPI(cmd.Context(), func(ctx context.Context, c *api) error { return a.usage(ctx, c, query) })
		},
	}
	a.jsonFlag(cmd)
	flags := cmd.Flags()
	flags.StringSliceVar(&f.by, "by", nil, "`words` with commas between them, day, model, flow, group or caller: a row for each (default day,model)")
	flags.StringVar(&f.from, "from", "", "the first `day`, such as 2026-11-01")
	flags.StringVar(&f.to, "to", "", "the last `day`, included (default today)")
	flags.IntVar(&f.days, "days", 0, "number of `days` up to and including today (default 7)")
	flags.StringVar(&f.flow, "flow", "", "calls of the flow of this `name`")
	flags.StringVar(&f.group, "group", "", "calls of the group of this `name`")
	flags.StringVar(&f.caller, "caller", "", "calls of the caller of this `name`; \"\" selects calls without a caller")
	flags.StringVar(&f.model, "model", "", "calls of the model of this `name`")
	return a.serverFlags(cmd)
}

func (f *usageFlags) query(cmd *cobra.Command, args []string) (query httpapi.UsageQuery, err error) {
	query = httpapi.UsageQuery{BucketName: theBucket(args), From: f.from, To: f.to, By: strings.Join(f.by, ",")}
	changed := cmd.Flags().Changed
	if changed("days") {
		switch {
		case changed("from") || changed("to"):
			return query, wrongUsage(cmd, "--days does not go with --from and --to")
		case f.days < 1 || f.days > operator.MaxUsageDays:
			return query, wrongUsage(cmd, "want --days of 1 to %d", operator.MaxUsageDays)
		}
		today := time.Now().UTC()
		query.From, query.To = today.AddDate(0, 0, 1-f.days).Format(time.DateOnly), today.Format(time.DateOnly)
	}
	for _, filter := range []struct {
		name string
		text *string
		to   **string
	}{{"flow", &f.flow, &query.Flow}, {"group", &f.group, &query.Group}, {"caller", &f.caller, &query.Caller}, {"model", &f.model, &query.Model}} {
		if changed(filter.name) {
			*filter.to = filter.text
		}
	}
	return query, nil
}

func (a *invocation) usage(ctx context.Context, c *api, query httpapi.UsageQuery) error {
	v, err := call(ctx, c, httpapi.ShowUsage, query)
	if err != nil {
		return named(err, "bucket", query.Bucket)
	}
	if len(v.Rows) == 0 && !a.json {
		a.note("bucket %q: no such call of a language model is known from %s to %s", v.Bucket, v.From, v.To)
		return nil
	}
	err = a.print(v, func(w io.Writer) { usageTable(w, v) })
	if v.More && err == nil && !a.json {
		a.note("there are more than %d rows: ask for fewer days, or filter", operator.MaxUsageRows)
	}
	return err
}

// usageTable prints the newest day first, and within a day the row with the most tokens.
func usageTable(w io.Writer, v *opsview.Usage) {
	rows := slices.Clone(v.Rows)
	slices.SortStableFunc(rows, func(a, b opsview.UsageRow) int { return cmp.Compare(b.Day, a.Day) })
	type column struct {
		title string
		cell  func(r *opsview.UsageRow) string
	}
	name := func(of func(r *opsview.UsageRow) *string) func(r *opsview.UsageRow) string {
		return func(r *opsview.UsageRow) string {
			switch text := of(r); {
			case text != nil:
				return quoted(*text)
			case r.Other:
				return "(other)"
			}
			return "-"
		}
	}
	group := column{"GROUP", name(func(r *opsview.UsageRow) *string { return r.Group })}
	of := map[operator.UsageBy][]column{
		operator.UsageByDay:    {{"DAY", func(r *opsview.UsageRow) string { return r.Day }}},
		operator.UsageByModel:  {{"MODEL", modelOf(name(func(r *opsview.UsageRow) *string { return r.Model }))}},
		operator.UsageByFlow:   {{"FLOW", name(func(r *opsview.UsageRow) *string { return r.Flow })}},
		operator.UsageByGroup:  {group},
		operator.UsageByCaller: {{"CALLER", name(func(r *opsview.UsageRow) *string { return r.Caller })}},
	}
	grouped := slices.ContainsFunc(rows, func(r opsview.UsageRow) bool { return r.Group != nil })
	if grouped && !slices.Contains(v.By, operator.UsageByGroup) { // flows of two groups may have one name
		of[operator.UsageByFlow] = append([]column{group}, of[operator.UsageByFlow]...)
	}
	var columns []column
	for _, by := range v.By {
		columns = append(columns, of[by]...)
	}
	for _, c := range columns {
		fmt.Fprintf(w, "%s\t", c.title)
	}
	fmt.Fprintln(w, "CALLS\tINPUT\tOUTPUT\tCHARGED")
	for i := range rows {
		for _, c := range columns {
			fmt.Fprintf(w, "%s\t", c.cell(&rows[i]))
		}
		fmt.Fprintf(w, "%d\t%d\t%d\t%d\n", rows[i].Calls, rows[i].Input, rows[i].Output, rows[i].Charged)
	}
	fmt.Fprintf(w, "total%s%d\t%d\t%d\t%d\n", strings.Repeat("\t", len(columns)), v.Total.Calls, v.Total.Input, v.Total.Output, v.Total.Charged)
}

// modelOf returns a cell with the model, and with the model that was named if that is another.
func modelOf(name func(r *opsview.UsageRow) string) func(r *opsview.UsageRow) string {
	return func(r *opsview.UsageRow) string {
		if r.Asked == nil {
			return name(r)
		}
		return name(r) + " (for " + quoted(*r.Asked) + ")"
	}
}
