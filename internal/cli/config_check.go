package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/internal/opsview"
)

func (a *invocation) configCheckCommand() *cobra.Command {
	var responses string
	var askRedis bool
	cmd := &cobra.Command{
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
	}
	a.jsonFlag(cmd)
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
