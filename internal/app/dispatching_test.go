package app

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
)

// counted is a worker that counts how often it is closed.
type counted struct{ closed int }

func (*counted) Deliver(context.Context, *shaper.Attempt) shaper.Outcome { return shaper.Done(0) }
func (c *counted) Close()                                                { c.closed++ }

// A reload makes anew only the workers whose settings have changed, and closes those of before, once. What is not applied is closed too.
func TestFleetKeepsWorkers(t *testing.T) {
	t.Parallel()
	load := func(text string) *config.Config {
		t.Helper()
		cfg := must.Get(config.Load(config.Options{ReadFile: func(string) ([]byte, error) { return []byte(text), nil }}))(t)
		return cfg
	}
	const two = "[[buckets]]\nname = \"stays\"\nrate = \"1/s\"\n[buckets.webhook]\nurl = \"https://a.example/\"\n" +
		"[[buckets]]\nname = \"other\"\nrate = \"1/s\"\n[buckets.webhook]\nurl = \"https://b.example/\"\n"
	before := load(two)
	f := &dispatching{lease: 30 * time.Second}
	must.OK(t, f.openWorkers(before))
	client := redis.NewClient(&redis.Options{})
	defer client.Close()
	var err error
	if f.Dispatcher, err = dispatcher.New(dispatcher.Config{Redis: client, Buckets: Buckets(before), Workers: f.workers()}); err != nil {
		t.Fatal(err)
	}
	f.open, f.next = map[string]builtWorker{}, nil
	stays, other := &counted{}, &counted{}
	for name, worker := range map[string]*counted{"stays": stays, "other": other} {
		f.open[name] = builtWorker{worker, newApplied(before).buckets[name].worker}
	}

	must.OK(t, f.openWorkers(load(two+"secrets = [\"whsec_"+strings.Repeat("MfKQ", 8)+"\"]\n")))
	refused := &counted{} // a worker of a configuration that another part refuses
	f.next["other"] = builtWorker{refused, nil}
	must.OK(t, f.openWorkers(before))
	if refused.closed != 1 || stays.closed+other.closed != 0 || f.next["other"].worker != closer(other) {
		t.Errorf("after a refusal: closed %d, %d, %d", refused.closed, stays.closed, other.closed)
	}
	after := load(two + "timeout = \"7s\"\n")
	must.OK(t, f.openWorkers(after))
	must.OK(t, f.follow(after))
	if stays.closed != 0 || other.closed != 1 || f.open["stays"].worker != closer(stays) || f.open["other"].worker == closer(other) {
		t.Errorf("after a change: closed %d, %d", stays.closed, other.closed)
	}
	f.close()
	if stays.closed != 1 || other.closed != 1 {
		t.Errorf("at the end: closed %d, %d", stays.closed, other.closed)
	}
}

// A bucket that a program of the user's works has no worker here, before and after reloads, and any job may go in.
func TestBucketsOfPrograms(t *testing.T) {
	t.Parallel()
	load := func(worker string) *config.Config {
		t.Helper()
		text := "[[buckets]]\nname = \"own\"\nrate = \"1/s\"\nworker = \"" + worker + "\"\n[buckets.webhook]\nurl = \"https://a.example/\"\n" +
			"[[buckets]]\nname = \"hooks\"\nrate = \"1/s\"\n[buckets.webhook]\nurl = \"https://b.example/\"\n"
		if worker != "webhook" {
			text = strings.Replace(text, "[buckets.webhook]\nurl = \"https://a.example/\"\n", "", 1)
		}
		cfg := must.Get(config.Load(config.Options{ReadFile: func(string) ([]byte, error) { return []byte(text), nil }}))(t)
		return cfg
	}
	f := &dispatching{lease: 30 * time.Second}
	must.OK(t, f.openWorkers(load("program")))
	client := redis.NewClient(&redis.Options{})
	defer client.Close()
	var err error
	if f.Dispatcher, err = dispatcher.New(dispatcher.Config{Redis: client, Buckets: dispatched(load("program")), Workers: f.workers()}); err != nil {
		t.Fatal(err)
	}
	f.open, f.next = f.next, nil
	for _, step := range []struct {
		worker string
		want   int
	}{{"webhook", 2}, {"program", 1}} {
		cfg := load(step.worker)
		must.OK(t, f.openWorkers(cfg))
		must.OK(t, f.follow(cfg))
		must.Equal(t, len(f.open), step.want, "worker %s: workers", step.worker)
	}
	check := CheckJob(load("program"))
	if err := check("own", &shaper.Job{Method: "PATCH", URL: "whatever"}); err != nil {
		t.Errorf("a job for a program: %v", err)
	}
	f.close()
}

// The dispatcher answers as the sink where a bucket sends there, whatever its worker.
func TestSinkOfEachWorker(t *testing.T) {
	t.Parallel()
	const bucket = "[[buckets]]\nname = \"b\"\nrate = \"1/s\"\n"
	const local = "allow_networks = [\"127.0.0.0/8\"]\n"
	for text, want := range map[string]bool{
		"webhook.url = \"http://127.0.0.1:8081/sink\"\nwebhook." + local:                                      true,
		"worker = \"http\"\nhttp.base_url = \"http://127.0.0.1:8081/sink\"\nhttp." + local:                    true,
		"worker = \"llm\"\nllm.api = \"openai\"\nllm.base_url = \"http://127.0.0.1:8081/sink\"\nllm." + local: true,
		"worker = \"llm\"\nllm.api = \"openai\"\nllm.base_url = \"https://api.openai.com\"\n":                 false,
		"worker = \"asynq\"\nasynq.queue = \"q\"\nasynq.task = \"t\"\n":                                       false,
	} {
		cfg := must.Get(config.Load(config.Options{ReadFile: func(string) ([]byte, error) { return []byte(bucket + text), nil }}))(t)
		must.Equal(t, wantsSink(cfg), want, "%q", text)
	}
}
