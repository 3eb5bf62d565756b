// Program man generates the documentation of both programs' commands for packages: man/, with one page for each program, and completions/, for three
// shells. The pages have the date of the commit, so the same commit makes the same bytes.
//
//	go run ./scripts/man FOLDER 2026-11-27T09:00:00Z
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tundish-io/tundish/internal/cli"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("want a folder and a time such as 2026-11-27T09:00:00Z, and there are %d arguments", len(args))
	}
	at, err := time.Parse(time.RFC3339, args[1])
	if err != nil {
		return err
	}
	for _, root := range cli.Commands() {
		if err := write(filepath.Join(args[0], "man", root.Name()+".1"), page(root, at)); err != nil {
			return err
		}
		var bash, zsh, fish bytes.Buffer
		if err := errors.Join(root.GenBashCompletionV2(&bash, true), root.GenZshCompletion(&zsh), root.GenFishCompletion(&fish, true)); err != nil {
			return err
		}
		for shell, text := range map[string][]byte{"bash": bash.Bytes(), "zsh": zsh.Bytes(), "fish": fish.Bytes()} {
			if err := write(filepath.Join(args[0], "completions", root.Name()+"."+shell), text); err != nil {
				return err
			}
		}
	}
	return nil
}

func write(name string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil { //nolint:gosec // all may read a manual
		return err
	}
	return os.WriteFile(name, text, 0o644) //nolint:gosec // all may read a manual
}
