package cli

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// templates are the files that `dispatcher init` writes: small, valid, and for one job each.
//
//go:embed templates/*.toml
var templates embed.FS

// starts are the templates, what each is for, and what to run once it is written, each in a terminal of its own.
var starts = []struct {
	name, about string
	next        []string
}{
	{"webhooks", "webhooks to a receiver, with a limit for each caller", []string{"dispatcher run", `producer send webhooks '{"order":17}'`}},
	{"api", "calls of an HTTP API at the rate that it allows, with their answers", []string{"dispatcher run", `producer send api '{"amount":5}' --path charges --result 10s`}},
	{"nightly", "jobs that are collected by day and sent at night in batches, and a report of each night", []string{"dispatcher run", `producer load nightly --jobs 1000`, "dispatcher bundle open nightly night-1 --size 1 --callback-url http://127.0.0.1:8081/sink?bundle", `producer send nightly '{"row":1}' --bundle night-1`, "dispatcher bucket drain nightly"}},
	{"asynq", "an even stream into the queue of your asynq servers", []string{"dispatcher run", "producer serve", `producer send emails '{"user":7}'`}},
	{"llm", "calls of a language model, within its tokens a minute", []string{"export OPENAI_API_KEY=…", "dispatcher run", `producer send openai '{"model":"gpt-4o-mini","messages":[{"role":"user","content":"hello"}]}' --path v1/chat/completions --result 60s`}},
}

func (a *invocation) initCommand() *cobra.Command {
	var names strings.Builder
	for _, s := range starts {
		fmt.Fprintf(&names, "  %-9s %s\n", s.name, s.about)
	}
	return a.jsonFlag(&cobra.Command{
		Use:   "init [TEMPLATE]",
		Short: "Write a small configuration that works",
		Long: `Write config.toml, or the file that --config names: at most 20 lines that work as they are;
asynq wants a Redis, and llm an API key. The command asks nothing, and does not replace a file. The
templates:

` + strings.TrimRight(names.String(), "\n"),
		Example: `  dispatcher init
  dispatcher init api --config api.toml
  dispatcher run`,
		Args: positional("[TEMPLATE]"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.init(cmd, append(args, starts[0].name)[0]) },
	})
}

// initView is the list of written files, for --json.
type initView struct {
	File     string   `json:"file"`
	Template string   `json:"template"`
	Next     []string `json:"next"`
}

func (a *invocation) init(cmd *cobra.Command, name string) error {
	var known []string
	for _, s := range starts {
		if known = append(known, s.name); s.name != name {
			continue
		}
		path := a.configPath
		if path == "" {
			path = "config.toml"
		}
		text, err := templates.ReadFile("templates/" + name + ".toml")
		if err != nil {
			return err
		}
		if err := writeNew(path, text); err != nil {
			return err
		}
		next := asTyped(s.next, os.Args[0], path)
		return a.print(initView{path, name, next}, func(w io.Writer) {
			fmt.Fprintf(w, "wrote %s: %s\nnext:\n  %s\n", path, s.about, strings.Join(next, "\n  "))
		})
	}
	return wrongUsage(cmd, "there is no template %q: want one of %s", name, strings.Join(known, ", "))
}

// asTyped puts the file, and the folder of the program as the user typed it, into commands: "bin/" of bin/dispatcher.
func asTyped(commands []string, program, file string) []string {
	folder, name := filepath.Split(program)
	if name != "dispatcher" && name != "producer" {
		folder = ""
	}
	list := make([]string, len(commands))
	for i, command := range commands {
		list[i] = command
		if strings.HasPrefix(command, "export ") {
			continue
		}
		list[i] = folder + command
		if file != "config.toml" {
			list[i] += " --config " + file
		}
	}
	return list
}

// writeNew writes a file that is not there yet.
func writeNew(path string, text []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // the user names it, and all may read it
	if errors.Is(err, fs.ErrExist) {
		return fail(exitFailed, "%s is there already: remove it, or name another file with --config", path)
	}
	if err != nil {
		return fail(exitFailed, "cannot write %s: %w", path, err)
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Close())
}
