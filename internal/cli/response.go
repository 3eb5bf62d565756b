package cli

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
	"github.com/tundish-io/tundish/workers/llm"
)

func (a *invocation) responseCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "response",
		Short: "Try what a response means for its job",
		Long: `Try what a response of a receiver means for its job, by the configuration. The command
talks to no server.`,
		Example: `  dispatcher response try shop --status 200 --body response.json
  dispatcher response try github --status 403 --header 'Retry-After: 5'`,
	}, a.responseTryCommand())
}

// tryFlags are the flags of `dispatcher response try`.
type tryFlags struct {
	status  int
	headers []string
	body    string
	attempt int
}

func (a *invocation) responseTryCommand() *cobra.Command {
	flags := tryFlags{status: http.StatusOK, attempt: 1}
	cmd := a.jsonFlag(&cobra.Command{
		Use:   "try BUCKET",
		Short: "Print which rule judges a response, and what becomes of its job",
		Long: `Print which rule of the bucket judges a response, what becomes of its job, and what the
scope of the job does. The flags give the status, the headers and the body of the response. The
command reads the configuration, sends nothing, and changes nothing.`,
		Example: `  dispatcher response try github --status 403 --header 'Retry-After: 5'
  dispatcher response try shop --body response.json --json
  curl -s https://api.example.com/x | dispatcher response try shop --body -`,
		Args: positional("BUCKET"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.responseTry(cmd, args[0], flags) },
	})
	f := cmd.Flags()
	f.IntVar(&flags.status, "status", flags.status, "status of the response, a `number`")
	f.StringArrayVarP(&flags.headers, "header", "H", nil, "`header` of the response, as \"Name: value\"; may be repeated")
	f.StringVar(&flags.body, "body", "", "`file` with the body of the response; - reads stdin")
	f.IntVar(&flags.attempt, "attempt", flags.attempt, "which attempt of the job the response is to, a `number`")
	return cmd
}

// tryView is the judgement of a response, for --json.
type tryView struct {
	Bucket       string `json:"bucket"`
	Rule         int    `json:"rule"` // counted from 1; 0: none fits
	Fits         string `json:"fits,omitempty"`
	Outcome      string `json:"outcome"`
	SpendsTry    bool   `json:"spends_attempt"`
	RetryAfterMs int64  `json:"retry_after_ms"`
	Holds        bool   `json:"holds_scope"`
	Receiver     string `json:"receiver"`
	Reason       string `json:"reason,omitempty"`
	Detail       string `json:"detail,omitempty"`

	wait  time.Duration
	scope string
}

func (a *invocation) responseTry(cmd *cobra.Command, bucket string, flags tryFlags) error {
	response, err := a.recordedResponse(cmd, flags)
	if err != nil {
		return err
	}
	cfg, err := a.load()
	if err != nil {
		return err
	}
	view, err := judgedBy(cfg, bucket, response)
	if err != nil {
		return wrongUsage(cmd, "%v", err)
	}
	return a.print(view, view.write)
}

// judgedBy returns the judgement of a response to a job of a bucket. The error says why the configuration has none.
func judgedBy(cfg *config.Config, bucket string, response *workers.Response) (*tryView, error) {
	at := slices.IndexFunc(cfg.Buckets, func(b config.Bucket) bool { return b.Name == bucket })
	if at < 0 {
		var names []string
		for _, b := range cfg.Buckets {
			names = append(names, b.Name)
		}
		return nil, fmt.Errorf("no [[buckets]] has the name %q%s", bucket, config.DidYouMean(bucket, names))
	}
	b := &cfg.Buckets[at]
	if b.Asynq != nil || b.ByProgram() {
		return nil, fmt.Errorf("bucket %q has the worker %s, which gets no HTTP responses", bucket, b.Worker)
	}
	policy := b.Policy()
	outcome := policy.Judge(response)
	if b.LLM != nil {
		outcome = llm.Judge(policy, response)
	}
	wait := min(outcome.RetryAfter, b.Adapt.MaxHold)
	view := &tryView{
		Bucket: bucket, Outcome: outcome.Result.String(), SpendsTry: outcome.Result == shaper.ResultRetry || outcome.Result == shaper.ResultDead,
		RetryAfterMs: wait.Milliseconds(), Holds: wait > 0 && (outcome.Result == shaper.ResultHeld || outcome.Result == shaper.ResultDone),
		Receiver: receiverWords[outcome.Signal], Reason: outcome.Reason, Detail: outcome.Detail, wait: wait, scope: string(b.Adapt.Scope),
	}
	view.Rule, view.Fits = policy.Rules.Fitting(response)
	return view, nil
}

var receiverWords = map[shaper.Signal]string{
	shaper.SignalNone: "unknown", shaper.SignalAccepted: "works", shaper.SignalThrottled: "asks for less", shaper.SignalFailed: "fails",
}

func (v *tryView) write(w io.Writer) {
	if v.Rule == 0 {
		fmt.Fprintln(w, "rule       none fits: the built-in ones judge")
	} else {
		fmt.Fprintf(w, "rule       number %d: %s\n", v.Rule, v.Fits)
	}
	spent := ""
	if v.SpendsTry {
		spent = ", and has spent an attempt"
	}
	fmt.Fprintf(w, "job        %s%s\n", v.Outcome, spent)
	if v.Holds {
		fmt.Fprintf(w, "scope      the %s sends nothing for %s\n", v.scope, opsview.Human(v.wait))
	} else {
		fmt.Fprintln(w, "scope      is not held")
	}
	fmt.Fprintf(w, "receiver   %s\n", v.Receiver)
	if v.Detail != "" {
		fmt.Fprintf(w, "detail     %s (%s)\n", v.Detail, v.Reason)
	}
}

// recordedResponse is the response that the flags describe.
func (a *invocation) recordedResponse(cmd *cobra.Command, flags tryFlags) (*workers.Response, error) {
	r := &workers.Response{Status: flags.status, Header: http.Header{}, At: time.Now(), Number: flags.attempt, InDoubt: flags.attempt > 1}
	for _, line := range flags.headers {
		name, value, ok := strings.Cut(line, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return nil, wrongUsage(cmd, "--header %q: want \"Name: value\"", line)
		}
		r.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	if flags.status < 100 || flags.status > 999 {
		return nil, wrongUsage(cmd, "--status %d: want a status of HTTP, such as 403", flags.status)
	}
	if flags.body == "" {
		return r, nil
	}
	from := a.in
	if flags.body != "-" {
		file, err := os.Open(flags.body)
		if err != nil {
			return nil, wrongUsage(cmd, "--body: %v", err)
		}
		defer file.Close()
		from = file
	}
	body, err := io.ReadAll(io.LimitReader(from, workers.JudgedBytes))
	if err != nil {
		return nil, fmt.Errorf("read the body: %w", err)
	}
	r.Body = body
	return r, nil
}
