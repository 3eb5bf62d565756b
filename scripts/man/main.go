// Program man writes the manual pages of both programs, one page for each, into a folder. The pages have the date of the commit, so the same
// commit makes the same bytes.
//
//	go run ./scripts/man FOLDER 2026-11-27T09:00:00Z
package main

import (
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
		name := filepath.Join(args[0], root.Name()+".1")
		if err := os.WriteFile(name, page(root, at), 0o644); err != nil { //nolint:gosec // all may read a manual
			return err
		}
	}
	return nil
}
