package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/internal/must"
)

// Each template is a small file that works as it is, without a warning, and config.toml of this repository is the first of them.
func TestTemplates(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"webhooks", "api", "nightly", "asynq", "llm"} {
		path := filepath.Join(t.TempDir(), "config.toml")
		said := runArgs(t.Context(), nil, "", "dispatcher", "init", name, "--config", path)
		said.want(t, 0, "wrote "+path, "next:", "dispatcher run --config "+path)
		if strings.Contains(said.out, "OPENAI_API_KEY=… --config") {
			t.Errorf("an export has a flag: %s", said.out)
		}
		text := must.Get(os.ReadFile(path))(t)
		if n := bytes.Count(text, []byte("\n")); n > 20 || name != "nightly" && n > 12 {
			t.Errorf("%s has %d lines", name, n)
		}
		cfg, err := config.Load(config.Options{Path: path, Env: []string{"OPENAI_API_KEY=x"}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if warnings := cfg.Warnings(); len(warnings) > 0 {
			t.Errorf("%s: %s", name, strings.Join(warnings, "\n"))
		}
		if b := cfg.Buckets[0]; name == "nightly" && (!b.Batch.Has() || b.Callbacks.Bucket == "" || len(cfg.Hooks) == 0 || !slices.Contains(cfg.Hooks[0].Events, "window.closed")) {
			t.Errorf("nightly has no batch, no callbacks for bundles, or no report of its night:\n%s", text)
		}
		if ours, err := os.ReadFile("../../config.toml"); name == "webhooks" && (err != nil || !bytes.Equal(ours, text)) {
			t.Errorf("config.toml is not the template: %v", err)
		}
		before := string(text)
		runArgs(t.Context(), nil, "", "dispatcher", "init", name, "--config", path).want(t, 1, "is there already")
		if text, _ := os.ReadFile(path); string(text) != before {
			t.Error("a file that was there is another one now")
		}
	}
	path := filepath.Join(t.TempDir(), "c.toml")
	runArgs(t.Context(), nil, "", "dispatcher", "init", "--json", "--config", path).want(t, 0, `"template": "webhooks"`, `"producer send webhooks`)
	runArgs(t.Context(), nil, "", "dispatcher", "init", "webhoks").want(t, 2, "want one of webhooks, api, nightly, asynq, llm")
	runArgs(t.Context(), nil, "", "dispatcher", "init", "--config", filepath.Join(t.TempDir(), "none", "c.toml")).want(t, 1, "cannot write")
}
