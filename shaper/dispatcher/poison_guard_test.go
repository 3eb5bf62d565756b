package dispatcher

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/producer"
)

// A process has one job on its last chance at a time, over all its buckets, and
// others beside it; all of them get their turn.
func TestOneLastChanceInAProcess(t *testing.T) {
	t.Parallel()
	buckets := []shaper.Bucket{rig.Bucket("b", 1000), rig.Bucket("c", 1000)}
	w := rig.NewWorld(t, buckets[0])
	client := must.Get(rig.NewActors(producer.Config{Redis: w.Server.Client(), Buckets: buckets}))(t)
	const doomed, others = 4, 30
	for _, b := range buckets {
		for i := range doomed + others {
			id := fmt.Sprint("other", i)
			if i < doomed {
				id = fmt.Sprint("doomed", i)
				doom(w, b.Name, id)
			}
			receipts, err := client.Enqueue(t.Context(), shaper.Job{Bucket: b.Name, ID: id, Payload: []byte("x")})
			if err != nil || receipts[0].Refusal != nil {
				t.Fatal(receipts, err)
			}
		}
	}
	var mu sync.Mutex
	alone, most, beside := 0, 0, 0
	turns := map[string]int{}
	over := make(chan struct{}, 100)
	held, passed := make(chan struct{}), make(chan struct{}) // the first one is being delivered; another job went beside it
	dispatch(w, shaper.WorkerFunc(func(ctx context.Context, a *shaper.Attempt) shaper.Outcome {
		mu.Lock()
		turns[a.Bucket+a.ID]++
		isDoomed := strings.HasPrefix(a.ID, "doomed")
		if isDoomed {
			alone++
			if most = max(most, alone); beside == 0 {
				beside = -1
				close(held)
			}
		} else if alone > 0 {
			if beside < 0 {
				beside = 0
				close(passed)
			}
			beside++
		}
		mu.Unlock()
		if isDoomed {
			select {
			case <-passed:
			case <-ctx.Done():
			}
			sleep(ctx, 50*time.Millisecond)
			mu.Lock()
			alone--
			mu.Unlock()
		}
		over <- struct{}{}
		return shaper.Done(200)
	}), func(cfg *Config) { cfg.Buckets = buckets })
	<-held
	if _, err := client.Enqueue(t.Context(), shaper.Job{Bucket: "b", ID: "late", Payload: []byte("x")}); err != nil { // the others may be gone
		t.Fatal(err)
	}
	for range 2*(doomed+others) + 1 {
		select {
		case <-over:
		case <-time.After(time.Minute):
			t.Fatalf("some never came: %v", turns)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if most != 1 || beside <= 0 || len(turns) != 2*(doomed+others)+1 {
		t.Errorf("%d on their last chance at a time, %d others beside them, %d jobs in all", most, beside, len(turns))
	}
}

// Two claims may be under way when the process holds none: what the second one
// got goes back. A job whose lease was lost is not held any more, even if
// its delivery does not end.
func TestLastChanceOfTwoClaims(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t, rig.Bucket("b", 100))
	doom(w, "b", "j")
	w.Submit("j")
	d := must.Get(New(Config{
		Redis: w.Server.Client(), Buckets: []shaper.Bucket{w.Bucket}, Workers: rig.Workers([]shaper.Bucket{w.Bucket}, shaper.WorkerFunc(w.Note)),
	}))(t)
	r := newBucketLoop(d, d.store.Known("b"), t.Context())
	claim := func(id string) {
		t.Helper()
		must.Get(r.claims.claim(t.Context(), id, 1))(t)
		r.deliveries.underWay.Wait()
		r.settler.queue.Wait()
	}
	// This claim's answer is on its way while another bucket's comes.
	must.Get(lua.Claim.Run(t.Context(), w.Server.Client(), nil, r.Keys.OfGroups(lua.Claim, []string{""}, nil), r.dispatcher, "c1", 1, 200_000, 30_000_000, 0, lastChance, 1,
		expiredLast, 0, "", store.WakeChannel, "b", maxClaimBytes, 0, 0, 0, 1))(t)
	other := &leased{Attempt: shaper.Attempt{ID: "other"}, claim: "c0", cancel: func(error) {}}
	if !d.guard.take(other) {
		t.Fatal("one is held already")
	}
	claim("c1")
	if j := w.Job("j"); j.State != shaper.StateQueued || w.Delivered["j"] != 0 || !r.held.holdsNothing() {
		t.Errorf("after the second claim: %+v", j)
	}
	claim("c2")
	if j := w.Job("j"); j.State != shaper.StateRetrying || d.guard.free() {
		t.Errorf("while the other is held: %+v", j)
	}
	r.held.hold(other)
	if err := r.held.extend(t.Context(), []*leased{other}, ""); err != nil || !d.guard.free() {
		t.Errorf("the lease was lost and the job is held: %v", err)
	}
}
