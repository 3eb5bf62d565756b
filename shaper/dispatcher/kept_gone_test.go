package dispatcher

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
)

// A customer answers 410 twice, to several jobs under way at once, and comes back: with flow.when_disabled = "keep" all jobs are kept each time, those that
// got the 410 too, and each is delivered once in the end. None is a dead letter or spends an attempt, though one attempt is all that a job has.
func TestJobsThatGotThe410AreKept(t *testing.T) {
	t.Parallel()
	b := rig.Flowing("b", shaper.FlowKeyJob)
	b.Rate.Count, b.Breaker.OnGone = 200, shaper.GoneDisables
	b.Flow.WhenDisabled, b.Flow.Capacity = shaper.KeepDisabled, 50
	b.Retry.MaxAttempts = 1
	w := rig.NewWorld(t, b)
	must.OK(t, w.Client.JoinPools(t.Context()))
	const jobs, together = 30, 5
	var mu sync.Mutex
	isGone, under := true, sync.NewCond(&mu)
	inFlight, refused := 0, 0
	dispatch(w, shaper.WorkerFunc(func(ctx context.Context, a *shaper.Attempt) shaper.Outcome {
		mu.Lock()
		defer mu.Unlock()
		if !isGone {
			return w.Note(ctx, a)
		}
		for inFlight++; inFlight < together; { // the first 410 comes when others are under way
			under.Wait()
		}
		under.Broadcast()
		refused++
		w.News()
		return shaper.Outcome{Result: shaper.ResultDead, Reason: "gone", Status: 410, Gone: true, Signal: shaper.SignalAccepted}
	}), nil)
	var ids []string
	for i := range jobs {
		ids = append(ids, fmt.Sprint("j", i))
	}
	w.SubmitTo("acme", ids...)
	flow := w.Client.Op.As("anna").Bucket("b").Flow("acme")
	for _, comesBack := range []bool{false, true} {
		w.Await(together)
		awaitKept(t, w, jobs)
		mu.Lock()
		inFlight, isGone = 0, !comesBack
		mu.Unlock()
		if was, err := flow.Enable(t.Context()); err != nil || !was {
			t.Fatal(was, err)
		}
	}
	for _, id := range ids {
		w.History.Admitted(id, time.Now())
	}
	for got := 0; got < jobs; got = len(w.Sent()) {
		w.Await(1)
	}
	w.AwaitEmpty()
	mu.Lock()
	defer mu.Unlock()
	if refused < 2*together {
		t.Errorf("%d jobs got a 410", refused)
	}
	for id, n := range w.Sent() {
		must.Equal(t, n, 1, "%s was delivered times", id)
	}
}

// awaitKept waits until the flow is disabled and none of its jobs is in flight. All of them wait, and none is dead.
func awaitKept(t *testing.T, w *rig.World, jobs int64) {
	t.Helper()
	tick, late := time.NewTicker(10*time.Millisecond), time.After(time.Minute)
	defer tick.Stop()
	for {
		if info := w.Info(); info.FlowsDisabled == 1 && info.InFlight == 0 {
			if info.Waiting != jobs || info.Dead != 0 {
				t.Fatalf("of %d jobs %d wait and %d are dead", jobs, info.Waiting, info.Dead)
			}
			return
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("the bucket has %+v", w.Info())
		}
	}
}
