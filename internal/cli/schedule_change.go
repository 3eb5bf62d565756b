package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
)

// scheduleRequest is a schedule in the form of the API.
type scheduleRequest struct {
	Bucket      string `json:"bucket,omitempty"`
	Cron        string `json:"cron,omitempty"`
	Timezone    string `json:"timezone,omitempty"`
	CatchUp     string `json:"catch_up,omitempty"`
	Overlap     string `json:"overlap,omitempty"`
	MaxAttempts int    `json:"max_attempts,omitempty"`
	jobRequest
}

// scheduleFlags are the flags of `schedule set`.
type scheduleFlags struct {
	file, payload string
	headers       []string
	expires       time.Duration
	dryRun        bool
	request       scheduleRequest
}

func (a *invocation) scheduleSetCommand() *cobra.Command {
	var flags scheduleFlags
	cmd := a.jsonFlag(&cobra.Command{
		Use:   "set NAME --cron LINE --bucket BUCKET",
		Short: "Make a schedule, or change one that was made so",
		Long: `Make a schedule, or replace one that was made so. It holds in all processes, at once and across
restarts, until ` + "`schedule remove`" + `: no reload removes it. A pause stays. Another --cron or
--timezone counts from now on; what else changes holds from the next fire on. A schedule
of the configuration is changed there. The flags mean what the keys of [[schedules]] mean.
With --file, a JSON object as PUT /v1/schedules/NAME takes it says all. With --dry-run, the
schedule is only checked, and its next fires are shown.

` + valueForms,
		Example: `  dispatcher schedule set nightly --cron "0 2 * * *" --timezone Europe/Paris --bucket reports --payload '{"report":"daily"}'
  dispatcher schedule set nightly --cron "H 2 * * *" --bucket reports --dry-run
  dispatcher schedule set nightly --file nightly.json`,
		Args: positional("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			body, err := a.scheduleBody(cmd, flags)
			if err != nil {
				return err
			}
			return a.withAPI(cmd.Context(), func(ctx context.Context, c *api) error { return a.scheduleSet(ctx, c, args[0], body, flags.dryRun) })
		},
	})
	f, r := cmd.Flags(), &flags.request
	f.SortFlags = false
	f.StringVar(&r.Cron, "cron", "", "cron `line`, such as \"0 2 * * *\" or \"@every 10m\"")
	f.StringVar(&r.Bucket, "bucket", "", "`name` of the bucket that the jobs go into")
	f.StringVar(&r.Timezone, "timezone", "", "`name` of a time zone, such as Europe/Paris (default: UTC)")
	f.StringVar(&r.CatchUp, "catch-up", "", "missed fires that are made up for: none, last or all, a `word` (default: last)")
	f.StringVar(&r.Overlap, "overlap", "", "queue or skip, a `word`: skip a fire while the job of the previous fire is unfinished (default: queue)")
	f.StringVar(&flags.payload, "payload", "", "`JSON` to deliver")
	f.StringVar(&r.Body, "body", "", "`text` to deliver instead of a payload")
	f.StringVar(&r.ContentType, "content-type", "", "`type` of the payload or the body (default: application/json)")
	f.StringVar(&r.URL, "url", "", "`URL` to deliver to (default: the bucket's)")
	f.StringVar(&r.Path, "path", "", "`path` below the base_url of a bucket that calls an API")
	f.StringVar(&r.Query, "query", "", "`query` of the request there, percent-encoded")
	f.StringVar(&r.Method, "method", "", "HTTP `method` of the delivery (default: POST)")
	f.StringArrayVar(&flags.headers, "header", nil, "`\"Name: value\"` sent with the delivery; may be repeated")
	f.StringVar(&r.Flow, "flow", "", "`name` of the flow, where the bucket has flows that jobs name")
	f.StringVar(&r.Group, "group", "", "`name` of the group of the flow, where the bucket has groups that jobs name")
	f.StringVar(&r.Priority, "priority", "", "critical, high, normal or low, a `word` (default: normal)")
	f.IntVar(&r.MaxAttempts, "max-attempts", 0, "deliveries tried at most, a `number` (default: as the bucket says)")
	f.DurationVar(&flags.expires, "expires-in", 0, "a job is worth sending for this `time` only (default: for ever)")
	f.StringVar(&flags.file, "file", "", "JSON `file` with all of it instead of the other flags; - is standard input")
	f.BoolVar(&flags.dryRun, "dry-run", false, "only check the schedule, and show its next fires")
	return cmd
}

// scheduleBody is the body of the request: of the file or of the flags.
func (a *invocation) scheduleBody(cmd *cobra.Command, flags scheduleFlags) (json.RawMessage, error) {
	r := flags.request
	if flags.file != "" {
		if r.Cron != "" || r.Bucket != "" {
			return nil, wrongUsage(cmd, "--file says all of the schedule: leave --cron and --bucket out")
		}
		return a.scheduleFile(cmd, flags.file)
	}
	if r.Cron == "" || r.Bucket == "" {
		return nil, wrongUsage(cmd, "--cron and --bucket are required, or --file")
	}
	if flags.payload != "" && !json.Valid([]byte(flags.payload)) {
		return nil, wrongUsage(cmd, "--payload: is not JSON: give other text as --body")
	}
	var err error
	values := secrets{app: a}
	if r.Headers, err = values.headers(cmd, "header", flags.headers); err != nil {
		return nil, err
	}
	if r.URL != "" {
		if r.URL, err = values.value(r.URL); err != nil {
			return nil, wrongUsage(cmd, "--url: %v", err)
		}
	}
	if cmd.Flags().Changed("expires-in") {
		r.ExpiresIn = flags.expires.String()
	}
	body, err := json.Marshal(r)
	if err == nil && flags.payload != "" { // not by the encoder, which would alter its bytes
		body = append(append(append(body[:len(body)-1], `,"payload":`...), flags.payload...), '}')
	}
	return body, err
}

const maxScheduleFile = 1 << 20

func (a *invocation) scheduleFile(cmd *cobra.Command, name string) (json.RawMessage, error) {
	from := a.in
	if name != "-" {
		file, err := os.Open(name) //nolint:gosec // the user names the file
		if err != nil {
			return nil, wrongUsage(cmd, "--file: %v", err)
		}
		defer file.Close()
		from = file
	}
	text, err := io.ReadAll(io.LimitReader(from, maxScheduleFile))
	if err != nil {
		return nil, fmt.Errorf("read --file %s: %w", name, err)
	}
	if text = bytes.TrimSpace(text); !json.Valid(text) || text[0] != '{' {
		return nil, wrongUsage(cmd, "--file %s: want a JSON object with cron and bucket", name)
	}
	return text, nil
}

func (a *invocation) scheduleSet(ctx context.Context, c *api, name string, body json.RawMessage, dryRun bool) error {
	if dryRun {
		rest := bytes.TrimLeft(body[1:], " \t\r\n")
		comma := ","
		if rest[0] == '}' {
			comma = ""
		}
		body = append([]byte(`{"dry_run":true`+comma), rest...)
	}
	v, err := call(ctx, c, httpapi.SetSchedule, httpapi.ScheduleDefinition{ScheduleName: httpapi.ScheduleName{Schedule: name}, Definition: body})
	if err != nil {
		return named(err, "schedule", name)
	}
	return a.print(v, func(w io.Writer) {
		switch {
		case dryRun:
			fmt.Fprintf(w, "%s would be set for bucket %s\n", v.Name, v.Bucket)
		case deref(v.Changed):
			fmt.Fprintf(w, "set: %s for bucket %s\n", v.Name, v.Bucket)
		default:
			fmt.Fprintf(w, "was so already: %s\n", v.Name)
		}
		for _, fire := range v.Next {
			fmt.Fprintf(w, "next\t%s\n", inZone(v, fire))
		}
		for _, warning := range v.Warnings {
			fmt.Fprintf(w, "warning\t%s\n", warning)
		}
	})
}

func (a *invocation) scheduleRemoveCommand() *cobra.Command {
	var yes, dryRun bool
	cmd := a.jsonFlag(&cobra.Command{
		Use:   "remove NAME",
		Short: "Remove a schedule that was made by `schedule set`",
		Long: `Remove a schedule that was made by ` + "`schedule set`" + `, with its history. Its jobs stay. Where the
configuration has one of this name for the bucket, that comes instead. A schedule of the
configuration is removed there. Type the schedule's name to confirm; without a terminal,
give --yes instead.`,
		Example: `  dispatcher schedule remove nightly
  dispatcher schedule remove nightly --dry-run
  dispatcher schedule remove nightly --yes`,
		Args: positional("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !yes && !dryRun && !isTerminal(a.in) {
				return wrongUsage(cmd, "this removes the schedule and its history: confirm with --yes, as there is no terminal to ask")
			}
			return a.withAPI(cmd.Context(), func(ctx context.Context, c *api) error { return a.scheduleRemove(ctx, c, args[0], yes, dryRun) })
		},
	})
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only show what would be removed")
	return cmd
}

func (a *invocation) scheduleRemove(ctx context.Context, c *api, name string, yes, dryRun bool) error {
	remove := httpapi.ScheduleRemoval{ScheduleName: httpapi.ScheduleName{Schedule: name}, DryRun: true}
	if dryRun || !yes {
		v, err := call(ctx, c, httpapi.RemoveSchedule, remove)
		if err != nil {
			return err
		}
		s := v.Schedule
		what := fmt.Sprintf("schedule %s of bucket %s, %q in %s, which was made by %s and has fired %s", s.Name, s.Bucket, s.Cron, s.Timezone, deref(s.Made).By, opsview.Count(s.Fired, "time"))
		if dryRun {
			return a.print(v, func(w io.Writer) { fmt.Fprintf(w, "would remove %s; nothing is changed\n", what) })
		}
		if err := a.confirm("This removes "+what+".", "schedule", name, "nothing is removed"); err != nil {
			return err
		}
	}
	remove.DryRun = false
	v, err := call(ctx, c, httpapi.RemoveSchedule, remove)
	if err != nil {
		return err
	}
	return a.print(v, func(w io.Writer) { fmt.Fprintf(w, "removed: %s\n", name) })
}
