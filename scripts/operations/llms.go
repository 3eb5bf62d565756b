package main

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"strings"
)

const (
	llmsPage  = "llms.txt"
	indexPage = "docs/README.md"
)

const llmsHead = `# Tundish

> Tundish is a self-hosted job queue on Redis that delivers at a steady rate: webhooks, API calls, LLM requests. Producers enqueue in bursts. Dispatchers
> send the jobs evenly at the configured rate, over all processes, with retries, dead letters and fair turns between customers.

It is written in Go and needs Redis 7.0 or Valkey. ` + "`producer serve`" + ` has the HTTP API on port 8080, and ` + "`dispatcher run`" + ` the console, the operator's API and
the metrics on port 8081. A job is delivered at least once. Pages are Markdown, with links relative to this file.
`

const llmsOptional = `
## Optional

- [Architecture](ARCHITECTURE.md): packages, the way of a job, the rules, how a claim works
- [OpenAPI](internal/httpapi/openapi.yaml): the contract of the HTTP APIs
- [Configuration reference](internal/config/reference.toml): every key with its default and range
- [Contributing](CONTRIBUTING.md): build, tests, which files a new setting or operation needs
- [Security](SECURITY.md): how to report a vulnerability
- [Changelog](CHANGELOG.md): what changed
`

// indexRow is a row of a table of the index: a page, and what a reader can do after it.
var indexRow = regexp.MustCompile(`^\| \[([^\]]+)\]\(([^)]+)\) \| (.+) \|$`)

// llms is the index of the documentation in the form of llmstxt.org, made from the tables of docs/README.md.
func llms() ([]byte, error) {
	index, err := os.ReadFile(indexPage)
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	text.WriteString(llmsHead)
	pages, section := 0, ""
	for line := range strings.Lines(string(index)) {
		line = strings.TrimRight(line, "\n")
		row := indexRow.FindStringSubmatch(line)
		switch {
		case strings.HasPrefix(line, "## "):
			section = line
		case row == nil && strings.HasPrefix(line, "| ["):
			return nil, fmt.Errorf("%s: %q is no row of two cells, a link and a text", indexPage, line)
		case row != nil:
			if section != "" {
				text.WriteString("\n" + section + "\n\n")
				section = ""
			}
			pages++
			fmt.Fprintf(&text, "- [%s](%s): %s\n", row[1], path.Join("docs", row[2]), row[3])
		}
	}
	if pages == 0 {
		return nil, fmt.Errorf("%s has no table of pages", indexPage)
	}
	text.WriteString(llmsOptional)
	return []byte(text.String()), nil
}
