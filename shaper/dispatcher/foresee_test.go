package dispatcher

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/schedule"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
)

// A receiver fails in the middle of a window: soon after, minutes before the finish, hooks are told that jobs will be left, and why.
// Two dispatchers foresee it, of which one comes and goes, and each window is told once. While all goes well nobody is told, also at the opening.
func TestFinishThatWillNotBeMetIsToldOnce(t *testing.T) {
	t.Parallel()
	often, reports := rig.Bucket("often", 10), rig.Bucket("reports", 10)
	often.Drain = &schedule.Drain{Cron: "*/10 * * * *", For: 9 * time.Minute, FinishBy: "8m"}
	often.Events, often.Breaker.Failures, often.Retry.MaxAttempts = []shaper.Event{shaper.EventFinishLate}, 0, 100
	var fails atomic.Bool
	var mu sync.Mutex
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, nil))
	var events []hookPayload
	worker := shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
		var event hookPayload
		switch {
		case a.Bucket == "reports" && json.Unmarshal(a.Payload, &event) == nil:
			mu.Lock()
			events = append(events, event)
			mu.Unlock()
		case fails.Load():
			return shaper.Retry("http_503", "")
		}
		return shaper.Done(200)
	})
	buckets := []shaper.Bucket{often, reports}
	inBubble(t, worker, buckets, func(l *loops) {
		one := func() *Dispatcher {
			d := must.Get(New(Config{
				Redis: l.redis, Buckets: buckets, Workers: rig.Workers(buckets, worker), Enqueue: l.client.Enqueue, Program: "dispatcher", Registerer: prometheus.NewRegistry(), Logger: logger,
				Hooks: []Hook{{Events: often.Events, Bucket: "reports", URL: "https://a.example"}},
			}))(l.t)
			return d
		}
		<-time.After(9*time.Minute + 30*time.Second) // a bubble begins at midnight
		jobs := make([]shaper.Job, 400)
		for i := range jobs {
			jobs[i] = shaper.Job{Bucket: "often", Payload: []byte("x")}
		}
		l.enqueue(jobs...)
		l.d = one()
		other, leave := context.WithCancel(l.t.Context())
		second := one()
		go func() { _ = second.Run(other) }()
		time.AfterFunc(2*time.Minute+30*time.Second, leave) // two minutes after the opening
		time.AfterFunc(3*time.Minute+30*time.Second, func() { fails.Store(true) })
		l.run(13*time.Minute + 30*time.Second) // into the next window
		leave()
		mu.Lock()
		defer mu.Unlock()
		must.Equal(l.t, strings.Count(log.String(), "jobs will be left at the finish"), 2, "logged times, want once for each of two windows:\n%s", log.String())
		must.Be(l.t, len(events), 2, "hooks were told times, want once for each of two windows: %+v", events)
		for i, event := range events {
			opened := time.Date(2000, 1, 1, 0, 10*(1+i), 0, 0, time.UTC)
			from := opened
			if i == 0 {
				from = from.Add(3 * time.Minute)
			}
			f := event.Data.Finish
			if event.Type != "finish.late" || event.Timestamp.Before(from) || event.Timestamp.After(from.Add(2*time.Minute)) || event.Data.Reason != "failing" {
				l.t.Errorf("window %d: %s at %s: %+v", i+1, event.Type, event.Timestamp, event.Data)
			}
			if f == nil || !f.At.Equal(opened.Add(8*time.Minute)) || f.Left < 100 || f.Left > 400 || !slices.Contains(f.Why, "failing") || f.Sentence == "" {
				l.t.Errorf("window %d: %+v", i+1, f)
			}
		}
	})
}
