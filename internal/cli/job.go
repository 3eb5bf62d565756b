package cli

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
)

func (a *app) jobCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "job",
		Short: "List jobs, look at one, or cancel it",
		Long:  "List jobs, look at one, or cancel it while it waits.",
		Example: `  dispatcher job list webhooks --state retrying
  dispatcher job show webhooks 0199c1a2-…
  dispatcher job cancel webhooks order-17`,
	}, a.jobListCommand(), a.jobShowCommand(), a.jobCancelCommand())
}

// jobView is a job as commands print it. Fields that do not apply to its state are
// left out.
type jobView struct {
	ID        string              `json:"id"`
	Bucket    string              `json:"bucket"`
	Flow      string              `json:"flow,omitempty"`
	Group     string              `json:"group,omitempty"`
	State     shaper.State        `json:"state"`
	Why       string              `json:"why,omitempty"`
	BlockedBy []shaper.BlockedBy  `json:"blocked_by,omitempty"` // what keeps it, one word each
	Attempts  int                 `json:"attempts"`
	Lost      int                 `json:"lost,omitempty"` // deliveries that spent no attempt
	Position  *int64              `json:"position,omitempty"`
	Enqueued  *time.Time          `json:"enqueued,omitempty"`
	ETA       *time.Time          `json:"eta,omitempty"`
	Due       *time.Time          `json:"due,omitempty"`
	Deadline  *time.Time          `json:"lease_deadline,omitempty"`
	Died      *time.Time          `json:"died,omitempty"`
	Method    string              `json:"method,omitempty"`
	URL       string              `json:"url,omitempty"`
	Headers   map[string][]string `json:"headers,omitempty"` // credentials redacted

	Payload json.RawMessage      `json:"payload,omitempty"`        // JSON unchanged, other text as a string
	Base64  string               `json:"payload_base64,omitempty"` // a payload that is no text
	Last    *shaper.LastResponse `json:"last_response,omitempty"`

	LastAttempts []opsview.Attempt `json:"last_attempts,omitempty"` // the oldest first
}

func viewJob(j shaper.JobInfo) jobView {
	v := jobView{
		ID: j.ID, Bucket: j.Bucket, Flow: j.Flow, Group: j.Group, State: j.State, Why: j.Why(), BlockedBy: j.BlockedBy(), Attempts: j.Attempts, Lost: j.Lost,
		Enqueued: instant(j.Enqueued), ETA: instant(j.Earliest()), Due: instant(j.Due), Deadline: instant(j.Deadline), Died: instant(j.Died),
		Method: j.Method, URL: j.URL, Headers: redacted(j.Headers), LastAttempts: opsview.Attempts(j.LastAttempts),
	}
	if j.State == shaper.StateQueued {
		v.Position = &j.Position
	}
	if j.Last != (shaper.LastResponse{}) {
		v.Last = &j.Last
	}
	switch {
	case len(j.Payload) == 0:
	case json.Valid(j.Payload):
		v.Payload = j.Payload
	case utf8.Valid(j.Payload):
		v.Payload, _ = json.Marshal(string(j.Payload)) // a string always marshals
	default:
		v.Base64 = base64.StdEncoding.EncodeToString(j.Payload)
	}
	return v
}

func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// printJob shows all of a job.
func (a *app) printJob(v jobView) error {
	now := time.Now()
	return a.print(v, func(w io.Writer) {
		row := func(name, value string) {
			if value != "" {
				fmt.Fprintf(w, "%s\t%s\n", name, line(value, 2000))
			}
		}
		at := func(name string, t *time.Time) {
			if t != nil {
				row(name, stamp(*t)+" ("+relative(*t, now)+")")
			}
		}
		row("id", v.ID)
		row("bucket", v.Bucket)
		row("group", v.Group)
		row("flow", v.Flow)
		row("state", string(v.State))
		row("why", v.Why)
		if v.Position != nil {
			row("position", fmt.Sprint(*v.Position))
		}
		at("leaves", v.ETA)
		at("due", v.Due)
		at("lease ends", v.Deadline)
		at("died", v.Died)
		at("enqueued", v.Enqueued)
		if v.Enqueued != nil {
			row("attempts", fmt.Sprint(v.Attempts))
		}
		if v.Lost > 0 {
			row("lost", count(v.Lost, "delivery")+", no attempt: held by the receiver, or its dispatcher died")
		}
		row("method", v.Method)
		row("url", v.URL)
		for _, name := range slices.Sorted(maps.Keys(v.Headers)) {
			for _, value := range v.Headers[name] {
				row("header", name+": "+value)
			}
		}
		for _, attempt := range v.LastAttempts {
			row(fmt.Sprintf("attempt %d", attempt.Number), attemptLine(attempt, now))
		}
		if v.Last != nil {
			row("last status", status(v.Last.Status))
			row("last reason", v.Last.Reason)
			row("last detail", v.Last.Detail)
			row("last answer", v.Last.Body)
			row("dead because", v.Last.Cause)
		}
		row("payload", string(v.Payload))
		row("payload (base64)", v.Base64)
	})
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

func status(code int) string {
	if code == 0 {
		return ""
	}
	return fmt.Sprint(code)
}

// onJob makes the RunE of a command that has BUCKET and ID as arguments.
func (a *app) onJob(do func(ctx context.Context, s *station, bucket, id string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		return a.withStation(cmd.Context(), func(ctx context.Context, s *station) error { return do(ctx, s, args[0], args[1]) })
	}
}
