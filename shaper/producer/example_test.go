package producer_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/embedded"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/producer"
)

// example connects to a Redis within this process; a program connects to its own.
func example() (conn redis.UniversalClient, closer func()) {
	server, err := embedded.Start("127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	conn, err = redisconn.Connect(server.URL(), redisconn.Options{})
	if err != nil {
		panic(err)
	}
	return conn, func() { _ = conn.Close(); server.Close() }
}

func letters() shaper.Bucket {
	b := shaper.DefaultBucket()
	b.Name = "letters"
	b.Rate, _ = admission.ParseRate("20/s")
	return b
}

// The same id is the same job. Another payload under that id is refused.
func ExampleClient_Enqueue() {
	conn, closer := example()
	defer closer()
	client, err := producer.New(producer.Config{Redis: conn, Buckets: []shaper.Bucket{letters()}})
	if err != nil {
		panic(err)
	}
	defer client.Close()
	for _, payload := range []string{"dear", "dear", "other"} {
		receipts, err := client.Enqueue(context.Background(), shaper.Job{Bucket: "letters", ID: "a", Payload: []byte(payload)})
		if err != nil {
			fmt.Println("the outcome is unknown: enqueue the same id again:", err)
			return
		}
		if r := receipts[0]; r.Refusal != nil {
			fmt.Println("refused:", r.Refusal.Reason)
		} else {
			fmt.Println(r.State, "duplicate:", r.Duplicate)
		}
	}
	// Output:
	// queued duplicate: false
	// queued duplicate: true
	// refused: id-reused
}

// A limit of the bucket refuses a caller, and says when the caller may come again.
func ExampleClient_Enqueue_limit() {
	conn, closer := example()
	defer closer()
	bucket := letters()
	perHour, _ := admission.ParseRate("2/h")
	bucket.Limits = []admission.Limit{{Name: "per-caller", Per: []string{admission.PerCaller}, Algorithm: admission.TokenBucket, Limit: perHour, Burst: 1}}
	client, err := producer.New(producer.Config{Redis: conn, Buckets: []shaper.Bucket{bucket}})
	if err != nil {
		panic(err)
	}
	defer client.Close()
	job := shaper.Job{Bucket: "letters", Payload: []byte("dear"), Identity: admission.Identity{Caller: "ada"}}
	receipts, err := client.Enqueue(context.Background(), job, job)
	if err != nil {
		panic(err)
	}
	for _, r := range receipts {
		if r.Refusal != nil {
			fmt.Println(r.Refusal.Reason, r.Refusal.Limits, "retry after", r.Refusal.RetryAfter.Round(time.Minute))
		} else {
			fmt.Println(r.State)
		}
	}
	// Output:
	// queued
	// limit-exceeded [per-caller] retry after 30m0s
}

// A job that waits can be looked at and cancelled.
func ExampleClient_Cancel() {
	conn, closer := example()
	defer closer()
	client, err := producer.New(producer.Config{Redis: conn, Buckets: []shaper.Bucket{letters()}})
	if err != nil {
		panic(err)
	}
	defer client.Close()
	ctx := context.Background()
	if _, err := client.Enqueue(ctx, shaper.Job{Bucket: "letters", ID: "a", Payload: []byte("dear"), Delay: time.Hour}); err != nil {
		panic(err)
	}
	job, err := client.Job(ctx, "letters", "a")
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s: %s\n", job.State, job.Why())
	state, err := client.Cancel(ctx, "letters", "a")
	fmt.Println(state, err)
	// Output:
	// scheduled: its time has not come
	// cancelled <nil>
}
