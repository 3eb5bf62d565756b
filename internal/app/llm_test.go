package app

import (
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/llm"
)

// A bucket with the worker llm has its jobs checked and delivered by it. Its calls may take longer than a lease.
func TestLLMBucket(t *testing.T) {
	t.Parallel()
	cfg := must.Get(config.Load(config.Options{ReadFile: func(string) ([]byte, error) {
		return []byte("[[buckets]]\nname = \"model\"\nrate = \"1/s\"\nadapt.hold = false\nworker = \"llm\"\nllm.api = \"openai\"\nllm.base_url = \"https://api.example.com\"\nllm.models = [\"m\"]\n"), nil
	}}))(t)
	settings := newApplied(cfg).buckets["model"].worker
	worker := must.Get((&dispatching{lease: time.Second, known: &learnedEstimates{}}).newWorker("model", settings))(t)
	defer worker.Close()
	if _, ok := worker.(*llm.Worker); !ok {
		t.Errorf("the worker is a %T", worker)
	}
	if policy := settings.(llm.Config).HTTP.Policy; policy.Hold || len(policy.Statuses) != 4 {
		t.Errorf("the policy is %+v", policy)
	}
	check := CheckJob(cfg)
	for body, want := range map[string]string{
		`{"model":"m","messages":[]}`:               "",
		`{"model":"m","messages":[],"stream":true}`: "payload.stream",
		`{"model":"n","messages":[]}`:               "payload.model",
	} {
		err := check("model", &shaper.Job{URL: "/v1/chat/completions", Payload: []byte(body)})
		if (err != nil) != (want != "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
}

// Jobs of a bucket with the worker llm reserve what their requests are expected to use, unless they say it themselves.
func TestEstimate(t *testing.T) {
	t.Parallel()
	const model = "worker = \"llm\"\nllm.api = \"openai\"\nllm.base_url = \"https://api.example.com\"\n"
	cfg := must.Get(config.Load(config.Options{ReadFile: func(string) ([]byte, error) {
		return []byte("[[buckets]]\nname = \"model\"\nrate = \"1/s\"\nbudgets = [\"9000 tokens/m\"]\n" + model +
			"[[buckets]]\nname = \"hook\"\nrate = \"1/s\"\nbudgets = [\"9000 tokens/m\"]\nwebhook.url = \"https://example.com\"\n"), nil
	}}))(t)
	d := &daemon{}
	d.inForce.Store(newApplied(cfg))
	for _, c := range []struct {
		bucket, body string
		given        shaper.Units
		want         string
	}{
		{"model", `{"model":"m","input":"0123456789"}`, nil, "input:3,output:500"},
		{"model", `{"model":"m","input":"0123456789","max_tokens":70}`, shaper.Units{"images": 1}, "images:1,input:3,output:70"},
		{"model", `{"model":"m","input":"0123456789"}`, shaper.Units{shaper.UnitOutput: 9}, "input:3,output:9"},
		{"model", `{"model":"m","input":"0123456789"}`, shaper.Units{shaper.UnitTokens: 9}, "tokens:9"},
		{"model", `no request`, shaper.Units{shaper.UnitOutput: 9}, "output:9"},
		{"hook", `{"model":"m","input":"0123456789"}`, nil, ""},
		{"unknown", `{"model":"m","input":"0123456789"}`, nil, ""},
	} {
		if got := d.estimate(c.bucket, &shaper.Job{Payload: []byte(c.body), Units: c.given}); got.String() != c.want {
			t.Errorf("%s %s with %v: %s, want %s", c.bucket, c.body, c.given, got, c.want)
		}
	}
	if known := d.learnedEstimates.learnedOf("model"); d.learnedEstimates.learnedOf("model") != known || d.learnedEstimates.learnedOf("hook") == known {
		t.Error("a bucket keeps no estimates, or shares them")
	}
}
