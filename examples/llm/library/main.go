// Command library calls OpenAI and Anthropic with their own Go clients, twenty calls at once. All wait for their slots in two buckets of Tundish, at two
// calls a second and within 90,000 tokens a minute, shared with other processes. It needs only Redis.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/anthropics/anthropic-sdk-go/v2"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
	"github.com/tundish-io/tundish/shaper/producer"
	"github.com/tundish-io/tundish/workers/llm"
)

const calls = 20

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

// bucket is one of the two: they differ in their names only.
func bucket(name string) (b shaper.Bucket, err error) {
	b = shaper.DefaultBucket()
	b.Name = name
	if b.Rate, err = admission.ParseRate("2/s"); err != nil {
		return b, err
	}
	budget, err := admission.ParseRate("90000 tokens/m")
	b.Budgets = shaper.Budgets{budget}
	return b, err
}

// worker sends the calls of a bucket, with the key of a provider.
func worker(api llm.API, baseURL, keyVariable string) (*llm.Worker, error) {
	config := llm.DefaultConfig(api)
	config.HTTP.BaseURL = baseURL
	if network := os.Getenv("ALLOW_NETWORK"); network != "" { // of a server of your own, such as 127.0.0.0/8
		allowed, err := netip.ParsePrefix(network)
		if err != nil {
			return nil, err
		}
		config.HTTP.AllowNetworks = []netip.Prefix{allowed}
	}
	switch key := os.Getenv(keyVariable); {
	case key == "":
		return nil, fmt.Errorf("%s is not set: it is the key of the provider", keyVariable)
	case api == llm.OpenAI:
		config.HTTP.Auth.Bearer = key
	default:
		config.HTTP.Auth.Header.Name, config.HTTP.Auth.Header.Value = "X-Api-Key", key
	}
	return llm.New(config, nil, nil)
}

func run(ctx context.Context) error {
	redis, err := redisconn.Connect(cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379/0"), redisconn.Options{})
	if err != nil {
		return err
	}
	defer redis.Close()
	ofOpenAI, err := bucket("openai")
	if err != nil {
		return err
	}
	ofAnthropic, err := bucket("claude")
	if err != nil {
		return err
	}
	buckets := []shaper.Bucket{ofOpenAI, ofAnthropic}

	openaiURL := cmp.Or(os.Getenv("OPENAI_URL"), "https://api.openai.com")
	toOpenAI, err := worker(llm.OpenAI, openaiURL, "OPENAI_API_KEY")
	if err != nil {
		return err
	}
	defer toOpenAI.Close()
	anthropicURL := cmp.Or(os.Getenv("ANTHROPIC_URL"), "https://api.anthropic.com")
	toAnthropic, err := worker(llm.Anthropic, anthropicURL, "ANTHROPIC_API_KEY")
	if err != nil {
		return err
	}
	defer toAnthropic.Close()

	// The dispatcher hands out the slots. It may as well run elsewhere, as `dispatcher run`.
	d, err := dispatcher.New(dispatcher.Config{Redis: redis, Buckets: buckets, Workers: map[string]shaper.Worker{"openai": toOpenAI, "claude": toAnthropic}})
	if err != nil {
		return err
	}
	dispatching, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- d.Run(dispatching) }()
	defer func() { stop(); <-ended }()

	client, err := producer.New(producer.Config{Redis: redis, Buckets: buckets})
	if err != nil {
		return err
	}
	defer client.Close()
	leases, err := dispatcher.NewLeases(dispatcher.LeasesConfig{Redis: redis})
	if err != nil {
		return err
	}
	defer leases.Close()
	permits := dispatcher.NewPermits(client, leases)
	defer permits.Close()

	// This is all that the providers' clients see of Tundish. They need no retries: it waits.
	queued := func(w *llm.Worker, bucket string) *http.Client {
		return &http.Client{Transport: &llm.Transport{Permits: permits, Worker: w, Bucket: bucket}}
	}
	gpt := openai.NewClient(openaioption.WithBaseURL(openaiURL+"/v1"), openaioption.WithAPIKey("the bucket has it"),
		openaioption.WithHTTPClient(queued(toOpenAI, "openai")), openaioption.WithMaxRetries(0))
	claude := anthropic.NewClient(anthropicoption.WithBaseURL(anthropicURL), anthropicoption.WithAPIKey("the bucket has it"),
		anthropicoption.WithHTTPClient(queued(toAnthropic, "claude")), anthropicoption.WithMaxRetries(0))

	return inParallel(func(n int) error {
		began := time.Now()
		name, ask := "gpt", func() (string, error) { return askGPT(ctx, gpt) }
		if n%2 == 1 {
			name, ask = "claude", func() (string, error) { return askClaude(ctx, claude) }
		}
		answer, err := ask()
		if err != nil {
			return fmt.Errorf("%s, call %d: %w", name, n, err)
		}
		fmt.Printf("%-6s %2d answered after %.1fs: %.60q\n", name, n, time.Since(began).Seconds(), answer)
		return nil
	})
}

// inParallel makes all calls at once, and returns the first error.
func inParallel(call func(n int) error) (first error) {
	var all sync.WaitGroup
	var once sync.Once
	for n := range calls {
		all.Go(func() {
			if err := call(n); err != nil {
				once.Do(func() { first = err })
			}
		})
	}
	all.Wait()
	return first
}

const question = "Write a haiku about queues."

// askGPT streams a chat.
func askGPT(ctx context.Context, client openai.Client) (text string, err error) {
	stream := client.Chat.Completions.NewStreaming(ctx, openai.ChatCompletionNewParams{
		Model:               cmp.Or(os.Getenv("OPENAI_MODEL"), "gpt-5-mini"),
		MaxCompletionTokens: openai.Int(500),
		Messages:            []openai.ChatCompletionMessageParamUnion{openai.UserMessage(question)},
	})
	defer stream.Close()
	for stream.Next() {
		for _, choice := range stream.Current().Choices {
			text += choice.Delta.Content
		}
	}
	return text, stream.Err()
}

// askClaude streams a message.
func askClaude(ctx context.Context, client anthropic.Client) (text string, err error) {
	stream := client.Messages.NewStreaming(ctx, anthropic.MessageNewParams{
		Model:     cmp.Or(os.Getenv("ANTHROPIC_MODEL"), "claude-haiku-4-5"),
		MaxTokens: 500,
		Messages:  []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(question))},
	})
	defer stream.Close()
	for stream.Next() {
		text += stream.Current().Delta.Text
	}
	return text, stream.Err()
}
