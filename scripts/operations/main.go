// Program operations generates files from the code: internal/httpapi/openapi.yaml, from the operations that package httpapi describes and
// openapi-by-hand.yaml and openapi-by-hand-components.yaml of its folder; docs/http-reference.md from openapi.yaml; docs/cli.md from the commands;
// docs/metrics.md from the registered metrics; docs/configuration-reference.md from internal/config/reference.toml; the table of docs/bounds.md;
// docs/redis-keys.md from the headers of the scripts in lua; and llms.txt from docs/README.md.
// With -check it writes nothing, and exits with 1 if one of them is stale.
//
//	go run ./scripts/operations
package main

import (
	"bytes"
	"fmt"
	"os"
)

func main() {
	if err := run(len(os.Args) > 1 && os.Args[1] == "-check"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(check bool) error {
	for name, made := range map[string]func() ([]byte, error){generated: document, endpointsPage: endpoints, commandsPage: commands, metricsPage: metrics, referencePage: reference, boundsPage: shares, keysPage: keysOfRedis, llmsPage: llms} {
		text, err := made()
		if err != nil {
			return err
		}
		there, err := os.ReadFile(name) //nolint:gosec // one of these constants
		switch {
		case err == nil && bytes.Equal(there, text):
		case check:
			return fmt.Errorf("%s is stale: run go run ./scripts/operations", name)
		default:
			if err := os.WriteFile(name, text, 0o644); err != nil { //nolint:gosec // all may read it
				return err
			}
		}
	}
	return nil
}
