package asynq_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"

	hibiken "github.com/hibiken/asynq"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/asynq"
)

// outcomes are the attempts that the process of the asynq server has counted, by outcome and reason.
func (w *world) outcomes() map[string]float64 {
	w.t.Helper()
	families := must.Get(w.registry.Gather())(w.t)
	counts := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range m.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			if family.GetName() == "tundish_attempts_total" && labels["bucket"] == bucket {
				counts[labels["outcome"]+" "+labels["reason"]] = m.GetCounter().GetValue()
			}
			if family.GetName() == "tundish_delivery_duration_seconds" && labels["bucket"] == bucket {
				counts["durations"] = float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return counts
}

// TestMetricsOfHandlers counts what handlers return in the process of the asynq server, which settles.
func TestMetricsOfHandlers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var ran runs
	w.serve(func(_ context.Context, task *hibiken.Task) error {
		n := ran.note(task)
		switch task.Headers()[asynq.HeaderJob] {
		case "skipped":
			return fmt.Errorf("no such user: %w", hibiken.SkipRetry)
		case "revoked":
			return fmt.Errorf("not needed: %w", hibiken.RevokeTask)
		case "retried":
			if n < 3 {
				return errors.New("busy")
			}
		case "panics":
			if n == 1 {
				panic("a bug")
			}
		}
		return nil
	}, asynq.Middleware(w.leases))
	w.dispatch()
	for id, state := range map[string]shaper.State{
		"good": shaper.StateDone, "retried": shaper.StateDone, "panics": shaper.StateDone, "skipped": shaper.StateDead, "revoked": shaper.StateDropped,
	} {
		w.enqueue(shaper.Job{Bucket: bucket, ID: id})
		w.awaitState(id, state)
	}
	want := map[string]float64{
		"done none": 3, "retry handler_error": 2, "retry panic": 1, "dead skip_retry": 1, "dropped revoked": 1, "durations": 8,
	}
	var got map[string]float64
	// A registry gathers one family after the other, so a count may be in the one and not yet in the other.
	w.await("the last outcome is counted", func() bool {
		got = w.outcomes()
		return got["durations"] >= want["durations"] && got["dropped revoked"] >= want["dropped revoked"]
	})
	if !maps.Equal(got, want) {
		t.Errorf("the asynq server counted %v, want %v", got, want)
	}
}
