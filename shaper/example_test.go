package shaper_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/embedded"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
	"github.com/tundish-io/tundish/shaper/producer"
)

// Three jobs go in at once and come out 50 ms apart. Refusals are in the
// receipts; an error of Enqueue means that the outcome is unknown.
func Example() {
	store, err := embedded.Start("127.0.0.1:0") // for anything kept: a real Redis
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	// The embedded store runs its first script slowly; against a real Redis leave the timeouts out.
	redis, err := redisconn.Connect(store.URL(), redisconn.Options{Timeout: 10 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer redis.Close()

	bucket := shaper.DefaultBucket()
	bucket.Name, bucket.Capacity = "letters", 2
	bucket.Rate, _ = admission.ParseRate("20/s")

	client, err := producer.New(producer.Config{
		Redis: redis, Buckets: []shaper.Bucket{bucket},
		Timeout: 10 * time.Second,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	receipts, err := client.Enqueue(context.Background(),
		shaper.Job{Bucket: "letters", ID: "a", Payload: []byte("dear")},
		shaper.Job{Bucket: "letters", ID: "b", Payload: []byte("reader")},
		shaper.Job{Bucket: "letters", ID: "c", Payload: []byte("no room")},
	)
	if err != nil {
		fmt.Println("outcome unknown, enqueue the same ids again:", err)
		return
	}
	for _, r := range receipts {
		if r.Refusal != nil {
			fmt.Println(r.ID, "is refused:", r.Refusal.Detail)
			continue
		}
		fmt.Println(r.ID, "is", r.State, "behind", r.Position)
	}

	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	left := 2
	printer := shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
		fmt.Printf("attempt %d of %s: %s\n", a.Number, a.ID, a.Payload)
		if left--; left == 0 { // two deliveries are 50 ms apart: no lock is needed here
			stop()
		}
		return shaper.Done(0)
	})
	dispatcher, err := dispatcher.New(dispatcher.Config{
		Redis: redis, Buckets: []shaper.Bucket{bucket}, Workers: map[string]shaper.Worker{"letters": printer}, Concurrency: 1,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := dispatcher.Run(ctx); err != nil {
		fmt.Println(err)
	}

	// Unordered output:
	// a is queued behind 0
	// b is queued behind 1
	// c is refused: bucket "letters" is full (2/2): retry in 1s or raise capacity
	// attempt 1 of a: dear
	// attempt 1 of b: reader
}
