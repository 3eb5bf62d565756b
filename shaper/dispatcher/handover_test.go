package dispatcher

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
)

// handing is a worker whose jobs run elsewhere. It looks after them with left.
type handing func(ctx context.Context) (outcome shaper.Outcome, isLeft bool, err error)

func (handing) HandsOver() {}

func (h handing) Deliver(_ context.Context, a *shaper.Attempt) shaper.Outcome {
	if err := a.Depart(); err != nil {
		return shaper.Returned("late")
	}
	return shaper.HandedOver(h)
}

// TestQueueThatDoesNotAnswer has a queue that lets a dispatcher wait for its answer. The leases of the jobs in it are kept meanwhile.
func TestQueueThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	const lease = time.Second
	w := rig.NewWorld(t, rig.Bucket("b", 500))
	var looks atomic.Int32
	answer := make(chan struct{})
	dispatch(w, handing(func(context.Context) (shaper.Outcome, bool, error) {
		looks.Add(1)
		<-answer
		return shaper.Dead("gone", "the queue has lost it"), true, nil
	}), func(cfg *Config) { cfg.Lease = lease })
	free := sync.OnceFunc(func() { close(answer) })
	t.Cleanup(free)
	w.Submit("a")
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for looks.Load() == 0 {
		<-tick.C
	}
	first := w.Job("a")
	for {
		<-tick.C
		info := w.Job("a")
		if info.Lost > 0 || info.State != shaper.StateInFlight {
			t.Fatalf("the lease was lost while the queue did not answer: %+v", info)
		}
		if info.Deadline.After(first.Deadline.Add(3 * lease)) {
			break
		}
	}
	free()
	w.AwaitDead(1)
}
