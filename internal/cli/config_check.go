package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/internal/opsview"
)

func (a *invocation) configCheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check the configuration: every fault at once",
		Long: `Check the configuration and list every fault, each with its file, line, key and
value. A valid configuration may have warnings: settings that are probably not meant.
The exit code is 2 where there are faults, and 0 where there are only warnings.`,
		Example: `  dispatcher config check
  dispatcher config check --config staging.toml --json`,
		Args: positional(),
		RunE: func(*cobra.Command, []string) error { return a.configCheck() },
	}
	a.jsonFlag(cmd)
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
}

func (a *invocation) configCheck() error {
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
	return a.print(view, func(w io.Writer) {
		file := cfg.File
		if file == "" {
			file = "the default configuration (there is no file)"
		}
		rest := ""
		if view.Pools > 0 {
			rest = ", " + opsview.Count(view.Pools, "pool")
		}
		if view.Keys > 0 {
			rest += ", " + opsview.Count(view.Keys, "API key")
		}
		fmt.Fprintf(w, "%s is valid: %s, %s%s\n", file, opsview.Count(view.Buckets, "bucket"), opsview.Count(view.Limits, "limit"), rest)
	})
}
