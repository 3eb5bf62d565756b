package app

import (
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/llm"
)

// A bucket with the worker llm has its jobs checked and delivered by it. Its calls may take longer than a lease.
func TestLLMBucket(t *testing.T) {
	t.Parallel()
	cfg, err := config.Load(config.Options{ReadFile: func(string) ([]byte, error) {
		return []byte("[[buckets]]\nname = \"model\"\nrate = \"1/s\"\nadapt.hold = false\nworker = \"llm\"\nllm.api = \"openai\"\nllm.base_url = \"https://api.example.com\"\nllm.models = [\"m\"]\n"), nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	settings, _ := workerOf(cfg, "model")
	worker, err := (&fleet{lease: time.Second}).newWorker(settings)
	if err != nil {
		t.Fatal(err)
	}
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
