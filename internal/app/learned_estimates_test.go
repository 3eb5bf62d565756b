package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
	"github.com/tundish-io/tundish/shaper/producer"
	"github.com/tundish-io/tundish/workers/llm"
)

// learnedFrom is a estimate on a model, whose answers have 40 tokens.
func learnedFrom(answers int64) shaper.LearnedEstimates {
	return shaper.LearnedEstimates{"m": {Answers: answers, Text: fmt.Sprint(answers, " 0.25 0 40 0")}}
}

// keptEstimates keeps estimates as Redis does, and notes of which buckets it was asked.
type keptEstimates struct {
	mu       sync.Mutex
	byBucket map[string]shaper.LearnedEstimates
	asked    []string
	fault    error
}

func (k *keptEstimates) LearnedEstimates(_ context.Context, buckets ...string) (map[string]shaper.LearnedEstimates, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked = append(k.asked, buckets...)
	found := map[string]shaper.LearnedEstimates{}
	for _, bucket := range buckets {
		found[bucket] = maps.Clone(k.byBucket[bucket])
	}
	if k.fault != nil {
		return nil, k.fault
	}
	return found, nil
}

func (k *keptEstimates) StoreLearnedEstimates(_ context.Context, learnedEstimates map[string]shaper.LearnedEstimates) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for bucket, some := range learnedEstimates {
		k.byBucket[bucket] = maps.Clone(some)
	}
	return k.fault
}

func (k *keptEstimates) fail(fault error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fault = fault
}

// A process that delivers stores what it has learned within 10 s and when it stops, and another one takes it in. A fault is told once.
func TestExchangeOfLearnedEstimates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kept := &keptEstimates{byBucket: map[string]shaper.LearnedEstimates{}}
		var log bytes.Buffer
		buckets := func() []string { return []string{"model"} }
		delivers := &estimateExchange{known: &learnedEstimates{}, buckets: buckets, from: kept, to: kept, log: slog.New(slog.NewTextHandler(&log, nil))}
		enqueues := &estimateExchange{known: &learnedEstimates{}, buckets: buckets, from: kept, log: slog.New(slog.DiscardHandler)}
		running, stop := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		for _, x := range []*estimateExchange{enqueues, delivers} { // in turns: they share the fake
			go func() { ended <- x.run(running) }()
			synctest.Wait()
			<-time.After(time.Second) // in a bubble: no time passes
		}
		knows := func(what string, answers int64) {
			t.Helper()
			synctest.Wait()
			must.Equal(t, kept.byBucket["model"]["m"].Answers, answers, "%s: what is stored is from answers", what)
		}
		knows("at first", 0)
		delivers.known.learnedOf("model").Adopt(learnedFrom(20))
		<-time.After(12 * time.Second) // nor here
		knows("within 10 s", 20)
		config := llm.DefaultConfig(llm.Anthropic)
		<-time.After(10 * time.Second) // nor here
		if units, err := llm.Estimate(config, "", []byte(`{"model":"m","messages":[]}`), enqueues.known.learnedOf("model")); err != nil || units[shaper.UnitOutput] != 40 {
			t.Errorf("the other process estimates %s: %v", units, err)
		}

		kept.fail(errors.New("redis is away"))
		<-time.After(time.Minute) // nor here
		kept.fail(nil)
		<-time.After(time.Minute) // nor here
		synctest.Wait()
		if strings.Count(log.String(), "redis is away") != 1 || strings.Count(log.String(), "\n") != 2 || !strings.Contains(log.String(), "shared with other processes again") {
			t.Errorf("the log is\n%s", log.String())
		}

		delivers.known.learnedOf("model").Adopt(learnedFrom(30))
		stop()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		knows("at the end", 30)
	})
}

// silentEstimates answers the first question, and then none: Redis is stopped.
type silentEstimates struct {
	keptEstimates

	isSilent bool
}

func (k *silentEstimates) LearnedEstimates(ctx context.Context, buckets ...string) (map[string]shaper.LearnedEstimates, error) {
	if k.isSilent {
		select {
		case <-ctx.Done():
		case <-time.After(time.Minute): // in a bubble: no time passes
		}
		return nil, context.DeadlineExceeded
	}
	k.isSilent = true
	return k.keptEstimates.LearnedEstimates(ctx, buckets...)
}

// A stop while Redis is silent does not wait for the patience of its client.
func TestStopWithoutALastExchange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kept := &silentEstimates{keptEstimates: keptEstimates{byBucket: map[string]shaper.LearnedEstimates{}}}
		x := &estimateExchange{known: &learnedEstimates{}, buckets: func() []string { return []string{"model"} }, from: kept, to: kept, log: slog.New(slog.DiscardHandler)}
		running, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- x.run(running) }()
		synctest.Wait()
		began := time.Now()
		stop()
		if err, took := <-ended, time.Since(began); err != nil || took != lastExchange {
			t.Errorf("the stop took %s, want %s: %v", took, lastExchange, err)
		}
	})
}

// Buckets with other workers are not asked about, and what is known of a bucket that left is forgotten.
func TestExchangeOnlyOfLLMs(t *testing.T) {
	t.Parallel()
	load := func(text string) *config.Config {
		t.Helper()
		cfg := must.Get(config.Load(config.Options{ReadFile: func(string) ([]byte, error) { return []byte(text), nil }}))(t)
		return cfg
	}
	const hook = "[[buckets]]\nname = \"hook\"\nrate = \"1/s\"\nwebhook.url = \"https://example.com\"\n"
	const model = "[[buckets]]\nname = \"model\"\nrate = \"1/s\"\nworker = \"llm\"\nllm.api = \"openai\"\nllm.base_url = \"https://api.example.com\"\n"
	if names := llmBuckets(load(hook + model)); !slices.Equal(names, []string{"model"}) {
		t.Errorf("buckets %v", names)
	}
	kept := &keptEstimates{byBucket: map[string]shaper.LearnedEstimates{}}
	x := &estimateExchange{known: &learnedEstimates{}, buckets: func() []string { return llmBuckets(load(hook)) }, from: kept, to: kept, log: slog.New(slog.DiscardHandler)}
	x.exchange(t.Context())
	if len(kept.asked) > 0 {
		t.Errorf("asked of %v", kept.asked)
	}
	x.known.learnedOf("model").Adopt(learnedFrom(20))
	x.known.keep([]string{"model"})
	if known := x.known.learnedOf("model"); len(known.News()) != 0 {
		t.Errorf("news %v", known.News())
	}
	x.known.keep(nil)
	if x.known.learnedOf("model").Adopt(nil); len(x.known.learnedOf("model").News()) != 0 {
		t.Error("a bucket that left is still known")
	}
}

// What a dispatcher stores a client reads.
func TestExchangeThroughRedis(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, conn redis.UniversalClient) {
		b := shaper.DefaultBucket()
		b.Name, b.Rate = "model", admission.Rate{Count: 1, Per: time.Second, Unit: admission.UnitRequests}
		d, err1 := dispatcher.New(dispatcher.Config{Redis: conn, Buckets: []shaper.Bucket{b}, Workers: map[string]shaper.Worker{"model": &counted{}}})
		c, err2 := producer.New(producer.Config{Redis: conn, Buckets: []shaper.Bucket{b}})
		must.OK(t, errors.Join(err1, err2))
		defer c.Close()
		must.OK(t, d.StoreLearnedEstimates(t.Context(), map[string]shaper.LearnedEstimates{"model": learnedFrom(20)}))
		for _, read := range []func(context.Context, ...string) (map[string]shaper.LearnedEstimates, error){d.LearnedEstimates, c.LearnedEstimates} {
			if got, err := read(t.Context(), "model"); err != nil || got["model"]["m"] != learnedFrom(20)["m"] {
				t.Errorf("read %v, %v", got, err)
			}
		}
	})
}
