package asynq_test

import (
	"context"
	"testing"
	"time"

	hibiken "github.com/hibiken/asynq"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/asynq"
)

// TestDial is the program of the page "Coming from asynq": one client enqueues, and has the middleware of the server.
func TestDial(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(b *shaper.Bucket, _ *asynq.Config) { b.DedupeWindow = time.Minute }) // so that a job that is done is remembered
	stop := w.dispatch()
	w.await("the dispatcher's settings", func() bool { _, err := w.producer.InForce(t.Context(), bucket); return err == nil })
	client, err := asynq.Dial(redistest.Start(t).URL()+"/0", bucket) // another server: nothing of it is used
	must.OK(t, err)
	if err := client.Close(); err != nil {
		t.Errorf("a client that was not used: %v", err)
	}
	client = must.Get(asynq.Dial(w.url, bucket))(t)
	seen := make(chan string, 1)
	drain := w.serve(func(_ context.Context, task *hibiken.Task) error { seen <- string(task.Payload()); return nil }, client.Middleware())
	info := must.Get(client.Enqueue(asynq.NewTask("email:send", []byte("ada")), hibiken.Queue(bucket)))(t)
	must.Equal(t, <-seen, "ada", "the handler saw")
	w.awaitState(info.ID, shaper.StateDone)
	drain()
	stop()
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	if _, err := asynq.Dial("http://127.0.0.1"); err == nil {
		t.Error("a URL of no Redis is dialed")
	}
}
