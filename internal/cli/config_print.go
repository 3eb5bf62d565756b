package cli

import (
	"github.com/spf13/cobra"
)

func (a *invocation) configPrintCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print the values in force, with the source of each",
		Long: `Print every key with its value in force, as TOML, and the source of the value: the
default, a line of the file, or a variable. Secrets are masked; but for them, the
output is a configuration file.`,
		Example: `  dispatcher config print
  dispatcher config print --json | jq '.[] | select(.source != "default")'`,
		Args: positional(),
		RunE: func(*cobra.Command, []string) error { return a.configPrint() },
	}
	a.jsonFlag(cmd)
	return cmd
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
