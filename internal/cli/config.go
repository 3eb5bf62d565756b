package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/app"
	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
)

func (a *invocation) configCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "config",
		Short: "Check the configuration, print the values in force, or every key",
		Long: `Check the configuration, or print the values in force: defaults, then the file, then
the TUNDISH_ variables of the environment, the later over the earlier. Or print every key
there is. These commands do not talk to Redis.`,
		Example: `  dispatcher config check
  dispatcher config print --config /etc/tundish/config.toml
  dispatcher config reference`,
	}, a.configCheckCommand(), a.configPrintCommand(), a.configReferenceCommand())
}

func (a *invocation) configCheckCommand() *cobra.Command {
	var responses string
	var askRedis bool
	cmd := a.jsonFlag(&cobra.Command{
		Use:   "check",
		Short: "Check the configuration: every fault at once",
		Long: `Check the configuration and list every fault, each with its file, line, key and
value. A valid configuration may have warnings: settings that are probably not meant.
The exit code is 2 where there are faults, and 0 where there are only warnings.

--responses names a file of recorded responses, one on each line:
{"bucket":"shop","status":200,"headers":{},"body":{…},"outcome":"held"}. The command
prints what each means for its job. It exits with 1 if an outcome is not the given one.

--redis asks Redis, too, which buckets are in another pool there, or have another name. The
command prints what a dispatcher with this configuration does with each, and exits with 2
if it refuses one.`,
		Example: `  dispatcher config check
  dispatcher config check --config staging.toml --json
  dispatcher config check --responses responses.ndjson
  dispatcher config check --redis`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.configCheck(cmd, responses, askRedis) },
	})
	cmd.Flags().StringVar(&responses, "responses", "", "`file` of recorded responses to judge")
	cmd.Flags().BoolVar(&askRedis, "redis", false, "say which buckets change their pool or their name")
	return cmd
}

// faultView is a fault as --json shows it.
type faultView struct {
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	Key    string `json:"key,omitempty"`
	Value  string `json:"value,omitempty"`
	Reason string `json:"reason"`
}

type checkView struct {
	Valid    bool        `json:"valid"`
	File     string      `json:"file"`
	Keys     int         `json:"keys"`
	Buckets  int         `json:"buckets"`
	Limits   int         `json:"limits"`
	Pools    int         `json:"pools"`
	Faults   []faultView `json:"faults"`
	Warnings []string    `json:"warnings"`
	Advice   []string    `json:"advice"`

	Responses []recordedView `json:"responses,omitempty"` // of the file of --responses
	Moves     []moveView     `json:"moves,omitempty"`     // with --redis
}

func (a *invocation) configCheck(cmd *cobra.Command, responses string, askRedis bool) error {
	cfg, err := a.load()
	if err != nil {
		var faults config.Faults
		if !errors.As(err, &faults) || !a.json {
			return err
		}
		view := checkView{Faults: make([]faultView, len(faults)), Warnings: []string{}, Advice: []string{}}
		for i, fault := range faults {
			view.Faults[i] = faultView(fault)
		}
		if err := writeJSON(a.out, view); err != nil {
			return err
		}
		return silent(exitUsage)
	}
	warnings, advice := cfg.Warnings(), cfg.Advice()
	if !a.json {
		for _, warning := range warnings {
			a.note("warning: %s", warning)
		}
		for _, text := range advice {
			a.note("advice: %s", text)
		}
	}
	view := checkView{
		Valid: true, File: cfg.File, Keys: len(cfg.Keys), Buckets: len(cfg.Buckets), Limits: len(cfg.Limits), Pools: len(cfg.Pools),
		Faults: []faultView{}, Warnings: append([]string{}, warnings...), Advice: append([]string{}, advice...),
	}
	differ := 0
	if responses != "" {
		if view.Responses, differ, err = recordedResponses(cfg, responses); err != nil {
			return wrongUsage(cmd, "%v", err)
		}
	}
	if askRedis {
		if err := a.withStation(cmd.Context(), func(ctx context.Context, s *station) (err error) {
			view.Moves, err = s.moves(ctx)
			return err
		}); err != nil {
			return err
		}
	}
	if err := a.print(view, func(w io.Writer) { view.write(w) }); err != nil {
		return err
	}
	if slices.ContainsFunc(view.Moves, func(m moveView) bool { return m.Refused }) {
		return fail(exitUsage, "a dispatcher refuses this configuration: a bucket cannot change its pool or its name")
	}
	if differ == 0 {
		return nil
	}
	return fail(exitFailed, "%d of %d responses in %s have another outcome than they name", differ, len(view.Responses), responses)
}

func (v *checkView) write(w io.Writer) {
	file := v.File
	if file == "" {
		file = "the default configuration (there is no file)"
	}
	rest := ""
	if v.Pools > 0 {
		rest = ", " + opsview.Count(v.Pools, "pool")
	}
	if v.Keys > 0 {
		rest += ", " + opsview.Count(v.Keys, "API key")
	}
	fmt.Fprintf(w, "%s is valid: %s, %s%s\n", file, opsview.Count(v.Buckets, "bucket"), opsview.Count(v.Limits, "limit"), rest)
	for _, m := range v.Moves {
		fmt.Fprintln(w, m.Text)
	}
	for i := range v.Responses {
		v.Responses[i].write(w)
	}
}

// moveView is a change of a bucket's pool, or of its name, that a dispatcher with the configuration would make.
type moveView struct {
	Bucket  string `json:"bucket"`
	Refused bool   `json:"refused"`
	Text    string `json:"text"`
}

// moves returns the buckets that are in another pool in Redis than in the configuration, and what a dispatcher with the configuration does with each.
func (s *station) moves(ctx context.Context) ([]moveView, error) {
	infos, err := s.operator.BucketInfos(ctx)
	if err != nil {
		return nil, err
	}
	configured, list := app.Buckets(s.config), []moveView{}
	for i := range infos {
		info := &infos[i]
		at := slices.IndexFunc(configured, func(b shaper.Bucket) bool { return b.Name == info.Name })
		if at < 0 || !info.Elsewhere && configured[at].RenamedFrom == "" {
			continue
		}
		text := opsview.PlannedRename(info)
		if info.Elsewhere {
			text = opsview.PlannedMove(info, &configured[at])
		}
		view := moveView{Bucket: info.Name, Text: fmt.Sprintf("bucket %q: %s", info.Name, text)}
		switch err := s.client.CheckPools(ctx, configured[at:at+1]); {
		case errors.Is(err, shaper.ErrTagChanged):
			view.Refused, view.Text = true, err.Error()
		case err != nil:
			return nil, err
		}
		if text != "" || view.Refused {
			list = append(list, view)
		}
	}
	return list, nil
}

// recorded is a line of the file of `dispatcher config check --responses`: a response that a receiver once sent.
type recorded struct {
	Bucket  string            `json:"bucket"`
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"`
	Body    json.RawMessage   `json:"body"`    // JSON, or any other text as a string
	Attempt int               `json:"attempt"` // 0: the first
	Outcome string            `json:"outcome"` // done, retry, held or dead; "" any
}

// recordedView is the judgement of one such response.
type recordedView struct {
	Line int `json:"line"`
	*tryView
	Wanted string `json:"wanted,omitempty"`
}

// maxRecorded bounds a line.
const maxRecorded = 1 << 20

// recordedResponses judges the responses in a file by a configuration. differ counts those whose outcome is not the wanted one. An error names
// its line.
func recordedResponses(cfg *config.Config, name string) (views []recordedView, differ int, err error) {
	file, err := os.Open(name) //nolint:gosec // the user names it
	if err != nil {
		return nil, 0, fmt.Errorf("--responses: %w", err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, maxRecorded)
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		view, err := recordedResponse(cfg, lines.Bytes())
		if err != nil {
			return nil, 0, fmt.Errorf("--responses: line %d of %s: %w", n, name, err)
		}
		view.Line = n
		if view.Wanted != "" && view.Wanted != view.Outcome {
			differ++
		}
		views = append(views, view)
	}
	if err := lines.Err(); err != nil {
		return nil, 0, fmt.Errorf("--responses: read %s: %w", name, err)
	}
	return views, differ, nil
}

func recordedResponse(cfg *config.Config, line []byte) (recordedView, error) {
	var r recorded
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		return recordedView{}, fmt.Errorf("want {\"bucket\": …, \"status\": …, \"headers\": {…}, \"body\": …, \"outcome\": …}: %w", err)
	}
	if r.Status < 100 || r.Status > 999 {
		return recordedView{}, fmt.Errorf("status %d: want a status of HTTP, such as 403", r.Status)
	}
	response := &workers.Response{
		Status: r.Status, Header: http.Header{}, Body: r.Body, At: time.Now(), Number: max(r.Attempt, 1), InDoubt: r.Attempt > 1,
	}
	for name, value := range r.Headers {
		response.Header.Add(name, value)
	}
	var text string
	if json.Unmarshal(r.Body, &text) == nil { // of an API that does not respond with JSON
		response.Body = []byte(text)
	}
	response.Body = response.Body[:min(len(response.Body), workers.JudgedBytes)]
	view, err := judgedBy(cfg, r.Bucket, response)
	return recordedView{tryView: view, Wanted: r.Outcome}, err
}

func (v *recordedView) write(w io.Writer) {
	by := "the built-in rules"
	if v.Rule > 0 {
		by = fmt.Sprintf("rule %d (%s)", v.Rule, v.Fits)
	}
	mark := ""
	if v.Wanted != "" && v.Wanted != v.Outcome {
		mark = fmt.Sprintf(": WRONG, want %s", v.Wanted)
	}
	fmt.Fprintf(w, "line %d: bucket %q, by %s: %s%s\n", v.Line, v.Bucket, by, v.Outcome, mark)
}

func (a *invocation) configPrintCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "print",
		Short: "Print the values in force, with the source of each",
		Long: `Print every key with its value in force, as TOML, and the source of the value: the
default, a line of the file, or a variable. Secrets are masked; but for them, the
output is a configuration file.`,
		Example: `  dispatcher config print
  dispatcher config print --json | jq '.[] | select(.source != "default")'`,
		Args: positional(),
		RunE: func(*cobra.Command, []string) error { return a.configPrint() },
	})
}

func (a *invocation) configPrint() error {
	cfg, err := a.load()
	if err != nil {
		return err
	}
	if !a.json {
		return cfg.WriteTOML(a.out)
	}
	type setting struct {
		Key    string `json:"key"`
		Value  string `json:"value"` // as TOML
		Source string `json:"source"`
	}
	list := []setting{}
	for _, s := range cfg.Effective() {
		list = append(list, setting(s))
	}
	return writeJSON(a.out, list)
}

func (a *invocation) configReferenceCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "reference",
		Short: "Print every key, with its default and its meaning",
		Long: `Print every key of this version as TOML, with its default, its bounds and its meaning. Copy what
you need into your file: keys that it leaves out have their defaults.`,
		Example: `  dispatcher config reference | less
  dispatcher config reference | grep max_in_flight`,
		Args: positional(),
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprint(a.out, config.Reference)
			return err
		},
	}
}
