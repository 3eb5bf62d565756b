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

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/internal/shellword"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/fleet"
	"github.com/tundish-io/tundish/shaper/operator"
)

func (a *invocation) bucketShowCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "show NAME",
		Short: "Show one bucket in full",
		Long:  "Show one bucket in full. It may have left the configuration.",
		Example: `  dispatcher bucket show webhooks
  dispatcher bucket show webhooks --json`,
		Args: positional("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withAPI(cmd.Context(), func(ctx context.Context, c *api) error { return a.bucketShow(ctx, c, args[0]) })
		},
	})
}

func (a *invocation) bucketShow(ctx context.Context, c *api, name string) error {
	v, err := c.bucket(ctx, name)
	if err != nil {
		return err
	}
	return a.print(v, func(w io.Writer) {
		r := rows{w, time.Now()}
		r.row("bucket", "%s", v.Name)
		if v.RenamedFrom != "" {
			r.row("renamed", "from %s: requests may have either name, and Redis has the first one", v.RenamedFrom)
		}
		r.text("verdict", v.Verdict.Sentence)
		r.row("rate", "%s, burst %d", v.Rate, v.Burst)
		for i := range v.Quotas {
			r.row("quota", "%s", v.Quotas[i].Text())
		}
		for i := range v.Budgets {
			r.row("budget", "%s", v.Budgets[i].Text())
		}
		r.row("depth", "%d of %d (%s)", v.Unfinished, v.Capacity, drainTime(v))
		r.hours(v)
		r.jobsOf(v)
		r.partsOf(v)
		if d := v.Downstream; d != nil && d.Text != "" {
			r.row("note", "%s", d.Text)
		}
		if p := v.Pool; p != nil && p.Downstream != nil && p.Downstream.Text != "" {
			r.row("note", "pool %s: %s", p.Name, p.Downstream.Text)
		}
		if c := v.Callbacks; c != nil {
			r.row("callbacks", "%d wait, the oldest for %s; they count against the capacity", c.Waiting, human(time.Duration(c.OldestAge*float64(time.Second))))
		}
		r.row("dead", "%s", deadOf(v))
		if v.Results != nil {
			r.row("results", "%s", v.Results.Text())
		}
		r.row("remembered", "%s, %d forgotten early", opsview.Count(v.Remembered, "settled id"), v.Forgotten)
		r.at("last slot", v.LastSlot)
		r.settings(v)
		r.notes(slices.DeleteFunc(slices.Clone(v.Notes), v.InVerdict))
		if v.InFlight > 0 && c.handsToAsynq(v.Name) {
			r.row("note", "jobs in flight were handed to asynq; to see whether a server has started them, use `asynq stats`, its Inspector or asynqmon")
		}
	})
}

// handsToAsynq reports whether the configuration has a worker of the kind asynq for a bucket. With --server that is not known.
func (c *api) handsToAsynq(bucket string) bool {
	return c.config != nil && slices.ContainsFunc(c.config.Buckets, func(b config.Bucket) bool { return b.Name == bucket && b.Asynq != nil })
}

// hours writes when a bucket may send, and its finish.
func (r rows) hours(v *opsview.Bucket) {
	if h := v.Hours; h != nil {
		hours, late := h.Text(r.now), lateText(h.Late)
		if v.Pause != nil {
			hours, late = h.PausedText(r.now), "; none leaves while the bucket is paused"
		}
		if v.Batch != nil {
			hours += "; the rate counts batches"
		}
		r.row("hours", "%s", hours)
		if h.Finish != nil {
			r.row("finish", "%s by %s%s", opsview.Count(h.FinishJobs, "job"), stamp(*h.Finish), late)
		}
	}
	if d := v.Drain; d != nil {
		r.row("drain", "%s", d.Text(r.now))
	}
}

// jobsOf writes the number of waiting jobs of a bucket, and of jobs in flight.
func (r rows) jobsOf(v *opsview.Bucket) {
	among := ""
	if v.Flows != nil {
		among = ", delayed jobs and retries among them"
	}
	if v.OldestAge > 0 {
		among += ", the oldest for " + oldest(v)
	}
	r.row("waiting", "%d%s", v.Waiting, among)
	if b := v.Batch; b != nil {
		r.row("in flight", "%s with %s; at most %d requests", opsview.Count(b.RequestsInFlight, "request"), opsview.Count(v.InFlight, "job"), v.MaxInFlight)
		r.row("batches", "up to %d jobs and %d bytes, which wait up to %s for others", b.MaxSize, b.MaxBytes, human(time.Duration(b.MaxWait*float64(time.Second))))
	} else {
		r.row("in flight", "%d of %d", v.InFlight, v.MaxInFlight)
	}
	if p := v.Pool; p != nil {
		r.row("pool", "%s: %s, burst %d, %s; weight %d of the bucket", p.Name, dash(p.Rate), p.Burst, p.Bound(), p.Weight)
		for i := range p.Quotas {
			r.row("pool quota", "%s", p.Quotas[i].Text())
		}
		for i := range p.Budgets {
			r.row("pool budget", "%s", p.Budgets[i].Text())
		}
	}
	if v.Flows == nil {
		r.row("later", "%d: %d scheduled (at most %d), retries: %d", v.Later, v.Scheduled, v.ScheduledCapacity, max(v.Later-v.Scheduled, 0))
	} else { // retries are not counted separately
		r.row("scheduled", "%d delayed jobs (at most %d)", v.Scheduled, v.ScheduledCapacity)
	}
}

// partsOf writes how many flows and groups a bucket has.
func (r rows) partsOf(v *opsview.Bucket) {
	if g := v.Groups; g != nil {
		r.row("groups", "%s", partsText(g, "group"))
	}
	f := v.Flows
	if f == nil {
		return
	}
	r.row("flows", "%s", partsText(f, "flow"))
	if f.Held+f.Open+f.HalfOpen > 0 {
		r.row("flows held", "%d; circuit breaker open: %d, half-open: %d (counted about every 30s)", f.Held, f.Open, f.HalfOpen)
	}
	if f.Disabled > 0 {
		r.row("flows disabled", "%d", f.Disabled)
	}
}

// settings writes the source of a bucket's effective settings, and the differences.
func (r rows) settings(v *opsview.Bucket) {
	r.row("revision", "%d", v.Revision)
	if w := v.Written; w != nil && w.At != nil {
		r.row("written", "by %s, which started or reloaded %s", w.By, relative(*w.At, r.now))
	}
	for _, c := range v.SettingChanges {
		for _, change := range c.Changes {
			r.row("changed", "%s %s by %s%s", change, relative(c.At, r.now), c.By, actionText(c.Action))
		}
	}
	r.differences(slices.DeleteFunc(slices.Clone(v.Differences), func(d opsview.Difference) bool {
		return d.Setting == "paused" // a note covers it
	}))
}

// actionText describes an operator's change of a setting, "" for a configuration.
func actionText(action string) string {
	if action == "" {
		return ""
	}
	return " (" + action + ")"
}

// lateText returns why jobs will remain at a finish.
func lateText(late string) string {
	switch shaper.Late(late) {
	case shaper.LateRate:
		return "; late: the rate that is needed is above the one that is allowed"
	case shaper.LateBehind:
		return "; late: something keeps jobs, see why"
	default:
		return ""
	}
}

// deadOf returns how many dead letters a bucket has, and its bound.
func deadOf(v *opsview.Bucket) string {
	text := fmt.Sprint(v.Dead)
	if v.DeadCapacity > 0 {
		text += fmt.Sprintf(" of %d", v.DeadCapacity)
	}
	text += fmt.Sprintf(", %d bytes", v.DeadBytes)
	if v.DeadMaxBytes > 0 {
		text += fmt.Sprintf(" of %d", v.DeadMaxBytes)
	}
	if v.DeadDropped > 0 {
		text += fmt.Sprintf(", %d dropped", v.DeadDropped)
	}
	return text
}

// drainTime returns when the last of the waiting jobs is sent, and whether that is a bound.
func drainTime(v *opsview.Bucket) string {
	switch {
	case v.Waiting == 0:
		return "nothing waits"
	case v.Verdict.EmptyUnknown != "":
		return "empty: unknown: " + v.Verdict.EmptyUnknown
	case v.Empty == nil:
		return "it is not known when the last leaves"
	}
	bound := earliestText(v)
	if bound == "" && len(v.Budgets) > 0 {
		bound = ", if they reserve as much as the last ones did"
	}
	return "the last leaves " + relative(*v.Empty, time.Now()) + bound
}

// earliestText explains why the time at which a bucket is empty is a bound; "" for an estimate.
func earliestText(v *opsview.Bucket) string {
	reasons := v.EarliestBecause()
	if len(reasons) == 0 {
		return ""
	}
	return " at the earliest, as " + strings.Join(reasons, " and ")
}

// partsText returns how many flows or groups a bucket has. A list of them has more: those with only settings.
func partsText(c *opsview.PartCounts, name string) string {
	text := fmt.Sprintf("%s with jobs, or with jobs lately", opsview.Count(c.Known, name))
	if c.Waiting != nil {
		text += fmt.Sprintf("; %d of them have something to send", *c.Waiting)
	}
	return text + fmt.Sprintf(" (%s list also has %ss with settings alone)", name, name)
}

// oldest is the age of the job at the head of a bucket, for people.
func oldest(v *opsview.Bucket) string {
	if v.OldestAge == 0 {
		return "-"
	}
	return human(time.Duration(v.OldestAge * float64(time.Second)))
}

func (a *invocation) bucketWhyCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "why BUCKET",
		Short: "Say whether a bucket delivers, and what keeps the jobs that wait",
		Long: `Say whether a bucket delivers, and what keeps the jobs that wait: how many jobs each cause keeps, of
which flow, group or pool, since and until when, and the command that helps. "sends" means that the
deliveries that succeeded in the last 30 s are at least 90 % of the rate. Of a bucket with many flows
a sample is looked at, and the answer says so. Of one job, "dispatcher job show" says why it waits.`,
		Example: `  dispatcher bucket why webhooks
  dispatcher bucket why webhooks --json | jq -r .code`,
		Args: positional("BUCKET"),
		RunE: show(a, "bucket", httpapi.ShowWhy, asking(theBucket), func(w io.Writer, v *httpapi.BucketWhy) {
			r := rows{w, time.Now()}
			r.text("bucket", v.Bucket)
			r.text("why", string(v.Code))
			r.text("that is", v.Sentence)
			r.at("until", v.Until)
			if v.EmptyUnknown != "" {
				r.row("empty", "unknown: %s", v.EmptyUnknown)
			}
			r.blocked(v.Bucket, &v.Verdict)
		}),
	})
}

// blocked writes what blocks jobs, a line for each cause, with the command that helps.
func (r rows) blocked(bucket string, v *opsview.Verdict) {
	for i := range v.Blocked {
		c := &v.Blocked[i]
		text := fmt.Sprintf("%s: %s", opsview.Count(c.Jobs, "job"), c.Code)
		switch {
		case c.Name == "" && c.Flows > 1:
			text += fmt.Sprintf(" of %d flows", c.Flows)
		case c.Scope != shaper.ScopeBucket:
			text += fmt.Sprintf(" of %s %s", c.Scope, quoted(c.Name))
		}
		if c.Reason != "" {
			text += ", " + line(c.Reason, 40) //nolint:mnd // a word
		}
		if c.Since != nil {
			text += ", since " + stamp(*c.Since)
		}
		if c.Until != nil {
			text += ", until " + stamp(*c.Until)
		}
		switch {
		case c.Action != "":
			text += "; dispatcher " + c.Action
		case c.Code == operator.WhyClosed:
			text += "; to send now: dispatcher bucket drain " + shellword.Join(bucket)
		}
		if c.Then != "" {
			text += "; once that is repaired: dispatcher " + c.Then
		}
		r.text("blocked", text)
	}
}

func (a *invocation) bucketHistoryCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "history BUCKET",
		Short: "Show what was counted of a bucket in the last 24 hours",
		Long: `Show what arrived in a bucket, was refused, departed and failed in the last 24 hours, in all processes:
a line for each hour in which something was counted. The picture has its departures in five minutes
each, twelve an hour. With --json there are all points of five minutes.`,
		Example: `  dispatcher bucket history webhooks
  dispatcher bucket history webhooks --json | jq '[.points[].departed] | add'`,
		Args: positional("BUCKET"),
		RunE: show(a, "bucket", httpapi.ShowHistory, asking(theBucket), printHistory),
	})
}

// printHistory writes a line for each hour that counted something.
func printHistory(w io.Writer, v *httpapi.History) {
	points, most := v.Points, int64(0)
	for _, p := range points {
		most = max(most, p.Departed)
	}
	fmt.Fprintln(w, "HOUR\tARRIVED\tREFUSED\tDEPARTED\tFAILED\tDEPARTURES")
	for len(points) > 0 {
		hour := points[0].At.Truncate(time.Hour)
		var sum fleet.Counts
		var departed []int64
		for len(points) > 0 && points[0].At.Truncate(time.Hour).Equal(hour) {
			p := points[0]
			sum.Arrived, sum.Refused, sum.Departed, sum.Failed = sum.Arrived+p.Arrived, sum.Refused+p.Refused, sum.Departed+p.Departed, sum.Failed+p.Failed
			departed, points = append(departed, p.Departed), points[1:]
		}
		if sum != (fleet.Counts{}) {
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%s\n", hour.UTC().Format("2006-01-02T15:04Z"), sum.Arrived, sum.Refused, sum.Departed, sum.Failed, picture(departed, float64(most)))
		}
	}
}

func (a *invocation) bucketTimetableCommand() *cobra.Command {
	var ahead time.Duration
	cmd := a.jsonFlag(&cobra.Command{
		Use:   "timetable BUCKET",
		Short: "Show when a bucket is open and at which rate, and when its schedules fire",
		Long: `Show when a bucket is open and at which rate, by its drain windows and its rate calendar, and when its
schedules fire. "dispatcher bucket why" reports all else that holds it up.`,
		Example: `  dispatcher bucket timetable nightly
  dispatcher bucket timetable nightly --for 720h --json | jq '.stretches[] | select(.open)'`,
		Args: positional("BUCKET"),
		RunE: show(a, "bucket", httpapi.ShowTimetable, asking(func(args []string) httpapi.TimetableQuery {
			from := time.Now().Truncate(time.Second)
			return httpapi.TimetableQuery{BucketName: theBucket(args), From: from, Until: from.Add(ahead)}
		}), printTimetable),
	})
	const week = 7 * 24 * time.Hour
	cmd.Flags().DurationVar(&ahead, "for", week, "how far ahead, up to 840h")
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
