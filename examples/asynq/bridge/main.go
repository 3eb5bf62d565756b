// Program bridge moves the tasks that old producers put into the queue "default" into the bucket "emails".
package main

import (
	"context"
	"errors"
	"log"
	"time"

	"github.com/hibiken/asynq"

	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/producer"
	tundishasynq "github.com/tundish-io/tundish/workers/asynq"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	conn, err := redisconn.Connect("redis://127.0.0.1:6379/0", redisconn.Options{})
	if err != nil {
		return err
	}
	defer conn.Close()
	buckets := map[string]string{"default": "emails"} // the bucket of each old queue
	jobs, err := producer.New(producer.Config{Redis: conn, Buckets: []shaper.Bucket{{Name: "emails"}}})
	if err != nil {
		return err
	}
	client := tundishasynq.NewClient(jobs)
	defer client.Close()

	move := func(ctx context.Context, task *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		queue, _ := asynq.GetQueueName(ctx)
		_, err := client.EnqueueContext(ctx, task, asynq.Queue(buckets[queue]), asynq.TaskID(id))
		if errors.Is(err, asynq.ErrTaskIDConflict) {
			return nil // an earlier try has moved it, and died before asynq knew
		}
		return err
	}
	server := asynq.NewServerFromRedisClient(conn, asynq.Config{
		Queues:    map[string]int{"default": 1},
		IsFailure: func(error) bool { return false }, // a full bucket spends no retry of the task
		RetryDelayFunc: func(_ int, err error, _ *asynq.Task) time.Duration {
			var refused *tundishasynq.RefusedError
			if errors.As(err, &refused) {
				return max(refused.Refusal.RetryAfter, time.Second)
			}
			return time.Second
		},
	})
	return server.Run(asynq.HandlerFunc(move))
}
