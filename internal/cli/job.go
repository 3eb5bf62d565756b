package cli

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
)

// printJob prints all of a job. result is the text about its result, "" none.
func (a *invocation) printJob(v *opsview.Job, result string) error {
	return a.print(v, func(w io.Writer) {
		r := rows{w, time.Now()}
		r.text("id", v.ID)
		r.text("bucket", v.Bucket)
		r.text("group", v.Group)
		r.text("flow", deref(v.Flow))
		r.text("state", string(v.State))
		r.text("why", v.Why)
		if v.Position != nil {
			r.row("position", "%d", *v.Position)
		}
		if v.ETA != nil {
			bound := ""
			switch {
			case v.EarliestOnly():
				bound = " at the earliest"
			case v.GuessesBudgets():
				bound = ", if those ahead reserve as much as the last ones did"
			}
			r.row("leaves", "%s (%s%s)", stamp(*v.ETA), relative(*v.ETA, r.now), bound)
		}
		r.at("due", v.Due)
		r.at("lease ends", v.LeaseUntil)
		r.at("died", v.DiedAt)
		r.at("enqueued", v.EnqueuedAt)
		if v.DepartedAt != nil {
			r.text("sent", stamp(*v.DepartedAt)+", answered after "+time.Duration(deref(v.Took)*float64(time.Second)).Round(time.Millisecond).String())
		}
		r.attempts(v)
		r.text("result", result)
		r.text("payload", string(v.Payload))
		if utf8.Valid(v.PayloadBytes) {
			r.text("payload (text)", string(v.PayloadBytes))
		} else {
			r.text("payload (base64)", base64.StdEncoding.EncodeToString(v.PayloadBytes))
		}
	})
}

// attempts writes the targets and outcomes of a job's attempts.
func (r rows) attempts(v *opsview.Job) {
	if v.Attempts != nil {
		r.text("attempts", attemptsText(v))
	}
	r.text("method", v.Method)
	r.text("url", v.URL)
	r.headers(v.Headers)
	for _, attempt := range v.LastAttempts {
		r.text(fmt.Sprintf("attempt %d", attempt.Number), attemptLine(attempt, r.now))
	}
	if v.BeforeRedrive != nil {
		r.text("redriven", redrivenText(*v.BeforeRedrive))
	}
	if last := v.LastResponse; last != nil {
		r.text("last status", status(last.Status))
		r.text("last reason", last.Reason)
		r.text("last detail", last.Detail)
		r.text("last answer", last.Body)
		if v.State == shaper.StateDead {
			r.text("dead because", last.Cause)
		}
	}
}

// attemptsText returns how many attempts a job has spent, and why its other deliveries spent none, as far as that is known. It lists attempts before a
// redrive separately.
func attemptsText(v *opsview.Job) string {
	before := deref(v.BeforeRedrive).Deliveries
	others, next := v.Lost-before, before+1 // the delivery after the last one whose outcome may have been dropped
	if others <= 0 {
		return fmt.Sprint(*v.Attempts)
	}
	held, ended := 0, 0
	for _, attempt := range v.LastAttempts {
		if attempt.Number <= before {
			continue
		}
		if ended == 0 {
			next = attempt.Number
		}
		if ended++; attempt.Result == shaper.ResultHeld.String() {
			held++
		}
	}
	held = min(held, others)
	died := 0 // after the first kept outcome, all outcomes are kept
	if ended > 0 {
		died = min(max(*v.Attempts+v.Lost-(next-1)-ended, 0), others-held)
	}
	text := fmt.Sprintf("%d of %s", *v.Attempts, opsview.Count(*v.Attempts+others, "delivery"))
	for _, part := range []struct {
		n   int
		why string
	}{
		{held, "held: the receiver named a time to wait for, or it was the probe of a circuit breaker"},
		{died, "without an outcome: its dispatcher died, or lost its lease"},
		{others - held - died, "of which nothing is kept: it was held, or its dispatcher died or lost its lease"},
	} {
		if part.n > 0 {
			text += fmt.Sprintf("; %d %s", part.n, part.why)
		}
	}
	return text
}

// redrivenText describes a job before an operator redrove it.
func redrivenText(b opsview.BeforeRedrive) string {
	text := "it was dead"
	if b.Cause != "" {
		text += ": " + b.Cause
	}
	text += ", after " + opsview.Count(b.Deliveries, "delivery") + "; an operator put it back, with a fresh budget of attempts"
	if b.Cause != "" {
		text += ". The last response below is from before the redrive"
	}
	return text
}

// attemptLine is an attempt in one line.
func attemptLine(a opsview.Attempt, now time.Time) string {
	text := fmt.Sprintf("%s (%s): %s", stamp(a.At), relative(a.At, now), a.Result)
	if a.Reason != "" {
		text += ", " + a.Reason
	}
	if a.Status != 0 {
		text += fmt.Sprintf(", status %d", a.Status)
	}
	text += ", took " + time.Duration(a.Took*float64(time.Second)).Round(time.Millisecond).String()
	if a.Detail != "" {
		text += ": " + a.Detail
	}
	return text
}

// status returns an HTTP status, "" without one.
func status(code int) string {
	if code == 0 {
		return ""
	}
	return fmt.Sprint(code)
}

// onJob returns the RunE of a command that has BUCKET and ID as arguments.
func (a *invocation) onJob(do func(ctx context.Context, c *api, bucket, id string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		return a.withAPI(cmd.Context(), func(ctx context.Context, c *api) error { return do(ctx, c, args[0], args[1]) })
	}
}

// theJob returns the input of operations that need only the bucket and the id of a job.
func theJob(bucket, id string) httpapi.JobName {
	return httpapi.JobName{BucketName: httpapi.BucketName{Bucket: bucket}, ID: id}
}

// job reads a job.
func (c *api) job(ctx context.Context, bucket, id string) (*opsview.Job, error) {
	return call(ctx, c, httpapi.ShowJob, theJob(bucket, id))
}

// since returns how long ago a time was, "-" if it is not known.
func since(t *time.Time, now time.Time) string {
	if t == nil {
		return "-"
	}
	return relative(*t, now)
}

func (a *invocation) jobFindCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "find ID",
		Short: "Find a job by its id alone, in whichever bucket it is",
		Long: `Find a job by its id alone: a line for each bucket that has one of this id, or remembers one. The exit
code is 4 where there is none.`,
		Example: `  dispatcher job find order-17
  dispatcher job find order-17 --json | jq -r '.jobs[].bucket'`,
		Args: positional("ID"),
		RunE: show(a, "job", httpapi.FindJob, asking(func(args []string) httpapi.JobID { return httpapi.JobID{ID: args[0]} }), func(w io.Writer, v *httpapi.FoundJobs) {
			fmt.Fprintln(w, "BUCKET\tSTATE\tFLOW\tWHY")
			for _, job := range v.Jobs {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", job.Bucket, job.State, dash(deref(job.Flow)), dash(job.Why))
			}
		}),
	})
}

func (a *invocation) jobResultCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "result BUCKET ID",
		Short: "Show how a job ended, and what was answered",
		Long: `Show how a job ended, done or dead, and what was answered to its last attempt. The bucket
keeps that for result_retention. Before the end, and where nothing is kept, the exit code is 4.`,
		Example: `  dispatcher job result crm order-17
  dispatcher job result crm order-17 --json | jq -r .body`,
		Args: positional("BUCKET", "ID"),
		RunE: show(a, "bucket", httpapi.ShowResult, asking(func(args []string) httpapi.JobName { return theJob(args[0], args[1]) }), printResult),
	})
}

func printResult(w io.Writer, v *opsview.Result) {
	r := rows{w: w}
	r.text("id", v.ID)
	r.text("group", v.Group)
	r.text("flow", v.Flow)
	r.text("state", string(v.State))
	r.text("status", status(v.Status))
	r.text("dead because", v.Cause)
	r.text("reason", strings.TrimSuffix(v.Reason+": "+v.Detail, ": "))
	r.text("attempts", fmt.Sprint(v.Attempts))
	if v.EnqueuedAt != nil {
		r.text("enqueued", stamp(*v.EnqueuedAt))
	}
	if v.DepartedAt != nil {
		r.text("sent", stamp(*v.DepartedAt)+", answered after "+time.Duration(v.Took*float64(time.Second)).Round(time.Millisecond).String())
	}
	r.headers(v.Headers)
	if v.Cut {
		r.text("cut", "the body had more")
	}
	if v.Body != nil {
		r.text("body", *v.Body)
	} else {
		r.text("body (base64)", base64.StdEncoding.EncodeToString(v.BodyBytes))
	}
}

func (a *invocation) jobShowCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "show BUCKET ID",
		Short: "Show a job: state, position, ETA, attempts, last response",
		Long: `Show a job: its state and why it waits, position and ETA, how its last attempts ended,
the last response, and its payload. Headers with the name of a credential, such as Authorization, are
shown as "***". Of a settled job only the state is known, until its dedupe window
ends. Where the bucket keeps its result, it is shown when it was sent, how long that took, and
the status, and the command that shows all of the result is named.`,
		Example: `  dispatcher job show webhooks order-17
  dispatcher job show webhooks order-17 --json | jq .payload`,
		Args: positional("BUCKET", "ID"),
		RunE: a.onJob(func(ctx context.Context, c *api, bucket, id string) error {
			view, err := c.job(ctx, bucket, id)
			if err != nil {
				return err
			}
			return a.printJob(view, a.resultOf(ctx, c, view))
		}),
	})
}

// resultOf is the command that shows the result of a job, "" if none is kept.
func (a *invocation) resultOf(ctx context.Context, c *api, v *opsview.Job) string {
	if a.json || v.State != shaper.StateDone {
		return ""
	}
	if _, err := call(ctx, c, httpapi.ShowResult, theJob(v.Bucket, v.ID)); err != nil {
		return ""
	}
	return fmt.Sprintf("is kept: %s job result %s %s", a.program, v.Bucket, v.ID)
}
