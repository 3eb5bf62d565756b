package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/llmprovider"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// TestExamplesOfLLM runs what stands in examples/llm against providers of this test: the official clients of Node and of Go, queued.
func TestExamplesOfLLM(t *testing.T) {
	harness.BesideOthers(t)
	const budget = "budgets = [\"90000 tokens/m\"]\n"
	const route = "serve_proxy = true\nauth.bearer = \"sk_of_the_vendor\"\n"
	models := []model{
		{name: "openai", rate: "20/s", keys: budget, llm: route, provider: llmprovider.New(llmprovider.Settings{})},
		{name: "claude", rate: "20/s", api: llmprovider.Anthropic, keys: budget, llm: route, provider: llmprovider.New(llmprovider.Settings{API: llmprovider.Anthropic})},
	}
	example := filepath.Join("..", "examples", "llm")
	t.Run("the configuration", func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), filepath.Join(harness.Programs, "dispatcher"), "config", "check", "--config", filepath.Join(example, "tundish.toml"))
		cmd.Env = append(os.Environ(), "OPENAI_API_KEY=a", "ANTHROPIC_API_KEY=b")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	t.Run("Node", func(t *testing.T) {
		script := client(t, filepath.Join(example, "route.mjs"))
		s := startLLM(t, llmPlan{models: models, dispatchers: 1, server: redistest.Start(t), isNear: true})
		answersAll(t, script("TUNDISH_OPENAI="+s.producers[0]+"/v1/proxy/openai/v1", "TUNDISH_ANTHROPIC="+s.producers[0]+"/v1/proxy/claude"))
	})
	t.Run("Go", func(t *testing.T) {
		server := redistest.Start(t)
		s := startLLM(t, llmPlan{models: models, server: server, isNear: true}) // the program is its own dispatcher
		program := filepath.Join(t.TempDir(), "library")
		build := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
		build.Dir = filepath.Join(example, "library")
		if out, err := build.CombinedOutput(); err != nil {
			if strings.Contains(string(out), "dial tcp") {
				harness.Skip(t, "the clients of the providers cannot be fetched: %s", out)
			}
			t.Fatalf("%v: %s", err, out)
		}
		cmd := exec.CommandContext(t.Context(), program)
		cmd.Env = append(os.Environ(), "REDIS_URL=redis://"+server.Addr(), "OPENAI_URL="+s.providers["openai"], "ANTHROPIC_URL="+s.providers["claude"],
			"OPENAI_API_KEY=a", "ANTHROPIC_API_KEY=b", "ALLOW_NETWORK=127.0.0.0/8")
		answersAll(t, cmd)
	})
}

// answersAll runs a program of an example, and counts the answers that it tells.
func answersAll(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	for _, client := range []string{"gpt", "claude"} {
		n := 0
		for line := range strings.Lines(string(out)) {
			if strings.HasPrefix(line, fmt.Sprintf("%-6s", client)) && strings.Contains(line, ` answered after `) && !strings.HasSuffix(strings.TrimSpace(line), `""`) {
				n++
			}
		}
		if n != 10 {
			t.Errorf("%s: %d answers of 10", client, n)
		}
	}
	if err != nil || t.Failed() {
		t.Errorf("%v: %s%s", err, out, errs.String())
	}
}
