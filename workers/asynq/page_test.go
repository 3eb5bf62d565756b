package asynq_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// TestPagePrograms builds the whole programs of the documentation.
func TestPagePrograms(t *testing.T) {
	t.Parallel()
	pages := must.Get(filepath.Glob("../../docs/*.md"))(t)
	found := map[string]bool{}
	for _, page := range append(pages, "../../README.md") {
		text := must.Get(os.ReadFile(page))(t)
		for i, program := range programs(string(text)) {
			name := filepath.Base(page)
			found[name] = true
			t.Run(name+strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				file := filepath.Join(t.TempDir(), "main.go")
				must.OK(t, os.WriteFile(file, []byte(program), 0o600))
				if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", os.DevNull, file).CombinedOutput(); err != nil {
					t.Errorf("%s: %v\n%s", page, err, out)
				}
			})
		}
	}
	if !found["asynq.md"] || !found["library.md"] {
		t.Errorf("whole programs are only in %v", found)
	}
}

// programs returns the blocks of Go that begin with "package main", without the indent of a list.
func programs(page string) (programs []string) {
	var block []string
	indent, inside := "", false
	for line := range strings.Lines(page) {
		switch text := strings.TrimSpace(line); {
		case !inside && text == "```go":
			indent, inside, block = line[:strings.Index(line, "`")], true, nil
		case inside && text == "```":
			if inside = false; len(block) > 0 && strings.TrimSpace(block[0]) == "package main" {
				programs = append(programs, strings.Join(block, ""))
			}
		case inside:
			block = append(block, strings.TrimPrefix(line, indent))
		}
	}
	return programs
}
