package app

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// record is what stages did, in order.
type record struct {
	mu   sync.Mutex
	done []string
}

func (r *record) add(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done = append(r.done, what)
}

// stage runs until it is stopped and then takes a while to end.
func (r *record) stage(name string, drain time.Duration, err error) stage {
	return func(ctx context.Context) error {
		<-ctx.Done()
		r.add(name + " stops")
		time.Sleep(drain) //nolint:forbidigo // in a bubble: no time passes
		r.add(name + " ended")
		return err
	}
}

var inOrder = []string{"api stops", "api ended", "dispatcher stops", "dispatcher ended", "ops stops", "ops ended"}

func TestStagesStopInTheOrderOfTheFlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r record
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, stop)
		err := runStages(ctx, r.stage("api", time.Second, nil), r.stage("dispatcher", time.Hour, nil), r.stage("ops", 0, nil))
		if err != nil || !slices.Equal(r.done, inOrder) {
			t.Errorf("runStages = %v, stages did %q, want %q", err, r.done, inOrder)
		}
	})
}

func TestOneFailingStageStopsAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r record
		broken, slow := errors.New("broken"), errors.New("slow")
		fails := func(context.Context) error { return broken }
		err := runStages(t.Context(), r.stage("api", 0, slow), r.stage("dispatcher", 0, nil), fails, r.stage("ops", 0, nil))
		if !errors.Is(err, broken) || !errors.Is(err, slow) || !slices.Equal(r.done, inOrder) {
			t.Errorf("runStages = %v, stages did %q, want both errors and %q", err, r.done, inOrder)
		}
	})
}
