package dispatcher_test

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

// A delivery that fails is tried again, at the bucket's pace. The dispatcher stops when its context ends.
func ExampleDispatcher_Run() {
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
	bucket.Name = "letters"
	bucket.Rate, _ = admission.ParseRate("100/s")
	bucket.Retry = shaper.RetryPolicy{MaxAttempts: 3, MinBackoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond}
	buckets := []shaper.Bucket{bucket}

	client, err := producer.New(producer.Config{Redis: conn, Buckets: buckets})
	if err != nil {
		panic(err)
	}
	defer client.Close()
	job := shaper.Job{Bucket: "letters", ID: "a", Headers: map[string][]string{"X-Tag": {"b", "c"}}, Payload: []byte("dear")}
	if _, err := client.Enqueue(context.Background(), job); err != nil {
		panic(err)
	}

	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	worker := shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
		fmt.Printf("attempt %d of %s: %s %v\n", a.Number, a.ID, a.Payload, a.Headers["X-Tag"])
		if a.Number == 1 {
			return shaper.Retry("busy", "the printer is busy")
		}
		stop()
		return shaper.Done(0)
	})
	d, err := dispatcher.New(dispatcher.Config{Redis: conn, Buckets: buckets, Workers: map[string]shaper.Worker{"letters": worker}})
	if err != nil {
		panic(err)
	}
	fmt.Println("stopped:", d.Run(ctx))
	done, err := client.Job(context.Background(), "letters", "a")
	fmt.Println(done.State, err)
	// Output:
	// attempt 1 of a: dear [b c]
	// attempt 2 of a: dear [b c]
	// stopped: <nil>
	// done <nil>
}
