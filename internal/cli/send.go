package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
)

// sendFlags are the flags of `producer send`.
type sendFlags struct {
	server  string
	key     string
	headers []string // of the delivery
	request []string // headers of the request that enqueues
	wait    bool
	result  time.Duration
	noBody  bool
	delay   time.Duration
	expires time.Duration
	cost    int64
	job     jobRequest

	reserves map[string]int64
}

func (a *invocation) sendCommand() *cobra.Command {
	var flags sendFlags
	cmd := a.jsonFlag(&cobra.Command{
		Use:   "send BUCKET [PAYLOAD]",
		Short: "Enqueue jobs: one, or one for each line of stdin",
		Long: `Enqueue one job, or with "-" or no PAYLOAD one for each line of stdin. A payload
is JSON and is delivered byte for byte, without spaces around it. Each job gets one line
on stdout: its state and id, its position, and when it leaves.

Every job has an id before it is sent, so a lost answer loses nothing: send it again
under the same id, and it is the same job. With --wait a refused job is tried again
when the server says so; without --wait the exit code is 3. With --result the command waits until
the one job has ended, and prints what was answered; the exit code is 1 where it is not done.

A server with API keys needs one: TUNDISH_KEY, TUNDISH_KEY_FILE or --key. Prefer the
variables to a key in --key itself.

` + valueForms,
		Example: `  producer send webhooks '{"order":17}' --url https://example.com/hook
  producer send webhooks '{"order":17}' --id order-17 --delay 10m
  producer send webhooks '{"order":17}' --header "X-Tenant: 7" --header "Authorization: file:/run/secrets/hook"
  TUNDISH_KEY_FILE=/run/secrets/tundish producer send webhooks '{"order":17}' --priority low
  producer send webhooks '{"order":17}' --group acme --flow hooks.acme.example
  producer send tenants '{"order":17}' --request-header "X-Tenant: acme"
  producer send crm --method GET --path customers/7 --query expand=orders --no-body
  producer send crm --path charges --body "amount=5&currency=eur" --content-type application/x-www-form-urlencoded
  producer send crm '{"amount":5}' --path charges --result 30s
  jq -c '.[]' orders.json | producer send webhooks --url https://example.com/hook --wait`,
		Args: positional("BUCKET", "[PAYLOAD]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.read(cmd); err != nil {
				return err
			}
			return a.send(cmd, args, flags)
		},
	})
	f := cmd.Flags()
	f.StringVar(&flags.server, "server", "", "`address` of the API (default: producer.listen of the configuration)")
	keyFlag(cmd, &flags.key)
	f.StringVar(&flags.job.URL, "url", "", "`URL` to deliver to (default: the bucket's)")
	f.StringVar(&flags.job.Method, "method", "", "HTTP `method` of the delivery (default: POST)")
	f.StringVar(&flags.job.Path, "path", "", "`path` below the base_url of a bucket that calls an API")
	f.StringVar(&flags.job.Query, "query", "", "`query` of the request there, percent-encoded")
	f.StringVar(&flags.job.Body, "body", "", "`text` to deliver instead of a PAYLOAD; with --content-type")
	f.StringVar(&flags.job.ContentType, "content-type", "", "`type` of the payload or the body (default: application/json)")
	f.BoolVar(&flags.noBody, "no-body", false, "deliver nothing: one request without PAYLOAD and --body")
	f.StringArrayVar(&flags.headers, "header", nil, "`\"Name: value\"` sent with the delivery; may be repeated, also with one name for several lines")
	f.StringArrayVar(&flags.request, "request-header", nil, "`\"Name: value\"` of the request to Tundish, which is not delivered: for a flow, a group or a limit that a header names (flow.key = \"header:X-Tenant\"); may be repeated")
	f.StringVar(&flags.job.ID, "id", "", "the job's `id`: the same id is the same job (default: a new one)")
	f.DurationVar(&flags.delay, "delay", 0, "leave no earlier than this `time` from now, such as 10s")
	f.DurationVar(&flags.expires, "expires-in", 0, "worth sending for this `time` only, such as 10m; then the job becomes a dead letter (default: for ever)")
	f.StringVar(&flags.job.Priority, "priority", "", "critical, high, normal or low, a `word`: a full bucket refuses low jobs first, and high ones leave first (default: normal)")
	f.StringVar(&flags.job.Flow, "flow", "", "`name` of the flow, where the bucket has flows that jobs name")
	f.StringVar(&flags.job.Group, "group", "", "`name` of the group of the flow, where the bucket has groups that jobs name")
	f.StringVar(&flags.job.Bundle, "bundle", "", "`id` of the bundle of the jobs, which is open already: dispatcher bundle open")
	f.Int64Var(&flags.cost, "cost", 0, "charge to the limits, a `number` (default: 1)")
	f.StringToInt64Var(&flags.reserves, "reserve", nil, "what the job reserves of budgets, `amounts` such as input=1200,output=400")
	f.BoolVar(&flags.wait, "wait", false, "wait and try again where a job is refused for now, or Redis is away")
	f.DurationVar(&flags.result, "result", 0, "wait up to this `time` until the job has ended, such as 30s, and print its result")
	return cmd
}

// read turns the flags into fields of the job.
func (f *sendFlags) read(cmd *cobra.Command) error {
	if f.delay < 0 {
		return wrongUsage(cmd, "--delay %s: want 0s or more", f.delay)
	}
	if f.expires < 0 || f.expires == 0 && cmd.Flags().Changed("expires-in") {
		return wrongUsage(cmd, "--expires-in %s: want more than 0s", f.expires)
	}
	if f.result < 0 || f.result%time.Second != 0 {
		return wrongUsage(cmd, "--result %s: want whole seconds", f.result)
	}
	switch {
	case f.cost != 0 && len(f.reserves) > 0:
		return wrongUsage(cmd, "--cost and --reserve: choose one")
	case f.cost != 0:
		f.job.Cost = f.cost
	case len(f.reserves) > 0:
		f.job.Cost = f.reserves
	}
	if f.noBody && f.job.Body != "" {
		return wrongUsage(cmd, "--no-body and --body: choose one")
	}
	if err := checkPriority(cmd, f.job.Priority); err != nil {
		return err
	}
	if err := f.checkText(cmd); err != nil {
		return err
	}
	if f.expires > 0 {
		f.job.ExpiresIn = f.expires.String()
	}
	if f.delay > 0 {
		f.job.Delay = f.delay.String()
	}
	return nil
}

// checkText refuses text that would be altered on its way to the server, as JSON is UTF-8.
func (f *sendFlags) checkText(cmd *cobra.Command) error {
	texts := map[string][]string{"path": {f.job.Path}, "query": {f.job.Query}, "body": {f.job.Body}, "content-type": {f.job.ContentType}, "url": {f.job.URL}, "header": f.headers, "request-header": f.request, "method": {f.job.Method}, "flow": {f.job.Flow}, "group": {f.job.Group}}
	for _, flag := range slices.Sorted(maps.Keys(texts)) {
		if slices.ContainsFunc(texts[flag], func(text string) bool { return !utf8.ValidString(text) }) {
			return wrongUsage(cmd, "--%s: is not UTF-8, and would be delivered altered", flag)
		}
	}
	return nil
}

func (a *invocation) send(cmd *cobra.Command, args []string, flags sendFlags) error {
	server, err := a.server(flags.server)
	if err != nil {
		return err
	}
	key, err := a.clientKey(flags.key)
	if err != nil {
		return err
	}
	bodyGiven := flags.noBody || flags.job.Body != ""
	values := secrets{app: a, stdin: !bodyGiven && (len(args) == 1 || args[1] == "-")} // which then holds the payloads
	if flags.job.Headers, err = values.headers(cmd, "header", flags.headers); err != nil {
		return err
	}
	request, err := values.headers(cmd, "request-header", flags.request)
	if err != nil {
		return err
	}
	s := newSender(server, args[0], flags.wait, a.note)
	s.key, s.result, s.header = key, flags.result, request
	s.http.Timeout += flags.result
	defer s.http.CloseIdleConnections()
	switch {
	case bodyGiven && len(args) == 2:
		return wrongUsage(cmd, "PAYLOAD is given together with --body or --no-body: a job has one body")
	case bodyGiven:
		return a.sendJob(cmd, s, flags.job)
	case len(args) == 2 && args[1] != "-":
		return a.sendOne(cmd, s, flags.job, args[1])
	case len(args) == 1 && isTerminal(a.in):
		return wrongUsage(cmd, `PAYLOAD is missing; or pipe lines of JSON in, or type them after "-"`)
	case flags.result > 0:
		return wrongUsage(cmd, "--result is for one job: give its PAYLOAD as an argument")
	case flags.job.ID != "":
		return wrongUsage(cmd, "--id names one job: give its PAYLOAD as an argument")
	}
	return a.sendLines(cmd.Context(), s, flags.job)
}

// checkPriority returns an error if the priority is neither known nor empty.
func checkPriority(cmd *cobra.Command, priority string) error {
	known := shaper.Priorities()
	if priority == "" || slices.Contains(known, shaper.Priority(priority)) {
		return nil
	}
	var names []string
	for _, one := range known {
		names = append(names, string(one))
	}
	return wrongUsage(cmd, "--priority %q: want one of %s", priority, strings.Join(names, ", "))
}

// wholeJob warns of a payload that may have been meant for import.
const wholeJob = `looks like a whole job, and is sent as the payload of one; "producer import" takes files of whole jobs`

func (a *invocation) sendOne(cmd *cobra.Command, s *sender, job jobRequest, payload string) error {
	if !json.Valid([]byte(payload)) {
		return wrongUsage(cmd, `PAYLOAD %q is not JSON; a text is JSON in quotes: '"text"'`, line(payload, 40))
	}
	job.Payload = json.RawMessage(payload)
	if httpapi.IsJob(job.Payload) {
		a.note("PAYLOAD %s", wholeJob)
	}
	return a.sendJob(cmd, s, job)
}

// sendJob sends one job and prints the response.
func (a *invocation) sendJob(cmd *cobra.Command, s *sender, job jobRequest) error {
	answer, err := s.send(cmd.Context(), job)
	if err != nil {
		return err
	}
	if answer.in() || a.json {
		if err := a.printAnswer(answer); err != nil {
			return err
		}
	}
	switch code := answer.exitCode(); {
	case code != exitDone:
		return fail(code, "%s", answer.refusal())
	case answer.ended() && answer.State != shaper.StateDone:
		return silent(exitFailed)
	case s.result > 0 && !answer.ended():
		return fail(exitFailed, "job %s has not ended within %s: `dispatcher job show %s %s` says how it stands", answer.ID, human(s.result), s.bucket, answer.ID)
	}
	return nil
}

// sendLines sends the lines of stdin one by one. A job that is not admitted has its line too; a fault that concerns all later lines ends the command.
func (a *invocation) sendLines(ctx context.Context, s *sender, template jobRequest) error {
	var in, refused, failed int
	number, warned := 0, false
	err := eachLine(ctx, a.in, func(text []byte) error {
		number++
		if !warned && httpapi.IsJob(text) {
			warned = true
			a.note("line %d %s", number, wholeJob)
		}
		job := template
		job.Payload = json.RawMessage(text)
		answer := notJSON
		if json.Valid(text) {
			var err error
			if answer, err = s.send(ctx, job); err != nil {
				return fmt.Errorf("line %d: %w", number, err)
			}
		}
		switch code := answer.exitCode(); {
		case answer.endsIt():
			return fail(code, "line %d: %s", number, answer.refusal())
		case code == exitDone:
			in++
		case code == exitRefused:
			refused++
		default:
			failed++
		}
		return a.printAnswer(answer)
	})
	a.note("%s in, %d refused, %d failed", opsview.Count(in, "job"), refused, failed)
	switch {
	case err != nil:
		return err
	case failed > 0:
		return silent(exitFailed)
	case refused > 0:
		return silent(exitRefused)
	}
	return nil
}

// printAnswer prints the one line of a job, or the result of one that has ended.
func (a *invocation) printAnswer(answer *answer) error {
	if answer.ended() {
		view := &opsview.Result{}
		if err := json.Unmarshal(answer.raw, view); err != nil {
			return fmt.Errorf("read the result of job %q: %w", answer.ID, err)
		}
		return a.print(view, func(w io.Writer) { printResult(w, view) })
	}
	text := string(answer.raw)
	if !a.json {
		text = answer.line(time.Now())
	}
	_, err := fmt.Fprintln(a.out, text)
	return err
}

// newSender returns a sender of jobs to a bucket of a server.
func newSender(server, bucket string, wait bool, note func(format string, args ...any)) *sender {
	return &sender{
		http:   newHTTPClient(sendTimeout),
		server: server, bucket: bucket, wait: wait, note: note, pause: pause,
		newID: func() (string, error) {
			id, err := uuid.NewV7()
			return id.String(), err
		},
	}
}
