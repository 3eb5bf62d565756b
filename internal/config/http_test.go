package config

import (
	"slices"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/llm"
)

// A bucket that calls an API has defaults of its own, over which the file goes.
func TestBucketsOfAPIs(t *testing.T) {
	t.Parallel()
	const text = `
[[pools]]
name = "vendor"
rate = "10/s"
[[buckets]]
name = "alone"
rate = "10/s"
worker = "http"
flow.key = "host"
http.base_url = "https://api.example.com/v1"
http.auth.bearer = "file:/secret"
http.headers = {X-A = "env:VALUE"}
[[buckets]]
name = "pooled"
rate = "10/s"
worker = "http"
pool = "vendor"
http.base_url = "https://api.example.com"
[[buckets]]
name = "told"
rate = "10/s"
worker = "http"
retry.statuses = ["500"]
adapt.scope = "flow"
http.base_url = "https://api.example.com"
`
	c := mustLoad(t, text, "VALUE=b")
	alone, pooled, told := c.Buckets[0], c.Buckets[1], c.Buckets[2]
	usual := []string{"408", "425", "429", "5xx"}
	if !slices.Equal(alone.Statuses, usual) || alone.Adapt.Scope != shaper.ScopeBucket || alone.Flow.DefaultURL != "https://api.example.com/v1" {
		t.Errorf("alone: %v, %s, %s", alone.Statuses, alone.Adapt.Scope, alone.Flow.DefaultURL)
	}
	if !slices.Equal(pooled.Statuses, usual) || pooled.Adapt.Scope != shaper.ScopePool {
		t.Errorf("pooled: %v, %s", pooled.Statuses, pooled.Adapt.Scope)
	}
	if !slices.Equal(told.Statuses, []string{"500"}) || told.Adapt.Scope != shaper.ScopeFlow {
		t.Errorf("told: %v, %s", told.Statuses, told.Adapt.Scope)
	}
	worker := alone.HTTP.Worker(7)
	if worker.Auth.Bearer != "hunter2" || worker.Headers["X-A"] != "b" || worker.Concurrency != 7 {
		t.Errorf("the worker is %+v", worker)
	}
}

// A table [buckets.batch] has defaults, and reaches the bucket and its worker.
func TestBatchSettings(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, `
[[buckets]]
name = "alone"
rate = "10/s"
[[buckets]]
name = "usual"
rate = "10/s"
[buckets.batch]
[[buckets]]
name = "told"
rate = "10/s"
[buckets.batch]
max_size = 7
max_bytes = "1KiB"
max_wait = "3s"
format = "ndjson"
`)
	for i, want := range []shaper.BatchSettings{{}, {MaxSize: 100, MaxBytes: 1 << 20}, {MaxSize: 7, MaxBytes: 1 << 10, MaxWait: 3 * time.Second}} {
		if got := c.Buckets[i]; got.Batch != want || got.Batch.Has() != (i > 0) || string(got.BatchFormat) != []string{"", "json", "ndjson"}[i] {
			t.Errorf("%s has %+v, format %q", got.Name, got.Batch, got.BatchFormat)
		}
	}
}

// A bucket that calls a model has the defaults of one that calls an API, and those of its API.
func TestBucketsOfModels(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, `
[[buckets]]
name = "openai"
rate = "10/s"
worker = "llm"
flow.key = "job"
llm.api = "openai"
llm.base_url = "https://api.example.com"
llm.auth.bearer = "file:/secret"
llm.models = ["gpt-*"]
[[buckets]]
name = "anthropic"
rate = "10/s"
worker = "llm"
llm.api = "anthropic"
llm.base_url = "https://api.example.com"
llm.headers = {anthropic-version = "2023-06-01"}
[[buckets]]
name = "told"
rate = "10/s"
worker = "llm"
adapt.scope = "flow"
llm.api = "anthropic"
llm.base_url = "https://api.example.com"
llm.count_max_tokens = true
llm.expected_output = 7
llm.expected_input = 8
llm.include_usage = false
llm.timeout = "1m"
`)
	openai, anthropic, told := c.Buckets[0], c.Buckets[1], c.Buckets[2]
	if !slices.Equal(openai.Statuses, []string{"408", "425", "429", "5xx"}) || openai.Adapt.Scope != shaper.ScopeBucket || openai.Flow.DefaultURL != "https://api.example.com" {
		t.Errorf("openai: %v, %s, %s", openai.Statuses, openai.Adapt.Scope, openai.Flow.DefaultURL)
	}
	worker := openai.LLM.Worker(7)
	if worker.API != llm.OpenAI || worker.HTTP.Auth.Bearer != "hunter2" || worker.HTTP.Concurrency != 7 || !slices.Equal(worker.Models, []string{"gpt-*"}) ||
		!worker.CountMaxTokens || worker.ExpectedOutput != 500 || worker.ExpectedInput != 4000 || !worker.IncludeUsage || worker.HTTP.Timeout != 10*time.Minute {
		t.Errorf("openai: %+v", worker)
	}
	if worker := anthropic.LLM.Worker(1); worker.API != llm.Anthropic || worker.CountMaxTokens || worker.HTTP.Headers["anthropic-version"] != "2023-06-01" {
		t.Errorf("anthropic: %+v", worker)
	}
	if worker := told.LLM.Worker(1); !worker.CountMaxTokens || worker.ExpectedOutput != 7 || worker.ExpectedInput != 8 || worker.IncludeUsage || worker.HTTP.Timeout != time.Minute || told.Adapt.Scope != shaper.ScopeFlow {
		t.Errorf("told: %+v, %s", worker, told.Adapt.Scope)
	}
	must.Equal(t, c.Buckets[1].DeliveryTimeout, 10*time.Minute, "a delivery may take")
}
