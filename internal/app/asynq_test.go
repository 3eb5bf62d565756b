package app

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/asynq"
)

// A worker with a Redis of its own that a reload has replaced closes its connections when nothing refers to it any more, and not before.
func TestConnectionsOfAReplacedAsynqWorker(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	clients := func() int {
		return strings.Count(server.Client().ClientList(t.Context()).Val(), "name=tasks")
	}
	config := asynq.DefaultConfig()
	config.Queue, config.Task, config.Settle = "default", "email:send", asynq.SettleHandover
	settings := asynqSettings{config, server.URL() + "?client_name=tasks", redisconn.Options{}}
	worker := must.Get(settings.worker(nil))(t)
	worker.Close()
	for _, id := range []string{"a", "b"} {
		runtime.GC()
		attempt := shaper.NewAttempt(time.Now(), time.Minute, nil)
		attempt.ID, attempt.Bucket, attempt.Epoch = id, "emails", 1
		if outcome := worker.Deliver(t.Context(), attempt); outcome.Result != shaper.ResultDone {
			t.Fatalf("job %s after Close: %+v", id, outcome)
		}
	}
	if clients() == 0 {
		t.Fatal("the worker has no connection: this shows nothing")
	}
	runtime.KeepAlive(worker) // until here: a collection before the count closed its connections
	for deadline := time.Now().Add(time.Minute); clients() > 0; {
		if runtime.GC(); time.Now().After(deadline) {
			t.Fatalf("%d connections of a worker that nothing refers to", clients())
		}
	}
}
