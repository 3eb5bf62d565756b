package asynq_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	hibiken "github.com/hibiken/asynq"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/embedded"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
	"github.com/tundish-io/tundish/shaper/producer"
	tundishasynq "github.com/tundish-io/tundish/workers/asynq"
)

// A handler of an asynq server fails once. Tundish, not asynq, tries the task again, at the pace of the bucket.
func Example() {
	server, err := embedded.Start("127.0.0.1:0") // a program connects to its own Redis
	if err != nil {
		panic(err)
	}
	defer server.Close()
	conn, err := redisconn.Connect(server.URL(), redisconn.Options{})
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	bucket := shaper.DefaultBucket()
	bucket.Name = "emails"
	bucket.Rate, _ = admission.ParseRate("100/s")
	bucket.Retry = shaper.RetryPolicy{MaxAttempts: 3, MinBackoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond}
	buckets := []shaper.Bucket{bucket}

	// The asynq server: one line more than before.
	leases, err := dispatcher.NewLeases(dispatcher.LeasesConfig{Redis: conn})
	if err != nil {
		panic(err)
	}
	defer leases.Close()
	ran := make(chan struct{}, 2)
	mux := hibiken.NewServeMux()
	mux.Use(tundishasynq.Middleware(leases))
	mux.HandleFunc("email:send", func(_ context.Context, task *hibiken.Task) error {
		defer func() { ran <- struct{}{} }()
		fmt.Printf("attempt %s: %s\n", task.Headers()[tundishasynq.HeaderAttempt], task.Payload())
		if task.Headers()[tundishasynq.HeaderAttempt] == "1" {
			return errors.New("the mail server is busy")
		}
		return nil
	})
	tasks := hibiken.NewServerFromRedisClient(conn, hibiken.Config{TaskCheckInterval: 10 * time.Millisecond, LogLevel: hibiken.FatalLevel})
	if err := tasks.Start(mux); err != nil {
		panic(err)
	}
	defer tasks.Shutdown()

	// The dispatcher: `dispatcher run` does the same with [buckets.asynq].
	config := tundishasynq.DefaultConfig()
	config.Queue, config.Redis = "default", conn
	worker, err := tundishasynq.New(config)
	if err != nil {
		panic(err)
	}
	d, err := dispatcher.New(dispatcher.Config{Redis: conn, Buckets: buckets, Workers: map[string]shaper.Worker{"emails": worker}})
	if err != nil {
		panic(err)
	}
	// The producer: another client, and the same calls.
	jobs, err := producer.New(producer.Config{Redis: conn, Buckets: buckets})
	if err != nil {
		panic(err)
	}
	client := tundishasynq.NewClient(jobs)
	defer client.Close()
	info, err := client.Enqueue(tundishasynq.NewTask("email:send", []byte("hello"), hibiken.TaskID("welcome-7")), hibiken.Queue("emails"))
	if err != nil {
		panic(err)
	}
	fmt.Println(info.ID, info.State)

	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- d.Run(ctx) }()
	<-ran
	<-ran
	stop()
	fmt.Println("stopped:", <-stopped)
	// Output:
	// welcome-7 pending
	// attempt 1: hello
	// attempt 2: hello
	// stopped: <nil>
}
