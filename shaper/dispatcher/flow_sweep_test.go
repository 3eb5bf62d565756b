package dispatcher

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// Outcomes of many flows travel in one script, and each flow gets its own.
func TestSettlementsOfFlows(t *testing.T) {
	t.Parallel()
	s := steppedOn(t, rig.NewFlowing(t), rig.NewWaiting())
	r := s.bucketLoop()
	var batch []*settlement
	for i := range settleBatch {
		flow := fmt.Sprint("f", i)
		s.Put(fmt.Sprint("w", i), flow, shaper.StateQueued)
		batch = append(batch, &settlement{job: s.lease(fmt.Sprint("j", i), flow), result: shaper.ResultReturned})
	}
	r.settler.send(batch)
	for i := range settleBatch {
		flow := fmt.Sprint("f", i)
		ids := s.Redis.LRange(t.Context(), store.BucketKeys("b").Queue(flow), 0, -1).Val()
		if want := fmt.Sprintf("[j%d w%d]", i, i); fmt.Sprint(ids) != want || s.TurnOf(flow) != 0 {
			t.Errorf("flow %s: %v, its turn is in %s", flow, ids, s.TurnOf(flow))
		}
	}
	if info, err := s.Client.Op.BucketInfos(t.Context(), "b"); err != nil || info[0].Flows != settleBatch || info[0].FlowsWait != settleBatch ||
		!info[0].HasFlows || info[0].InFlight != 0 || info[0].Waiting != 2*settleBatch {
		t.Errorf("bucket %+v, %v", info, err)
	}
}

// A patrol sees by the turn queue whether there is something to send; a sweep takes
// back what ran out in any flow, and mends the turn queue.
func TestPatrolOfFlows(t *testing.T) {
	t.Parallel()
	s := steppedOn(t, rig.NewFlowing(t), rig.NewWaiting())
	r := s.bucketLoop()
	r.claims.sleeping.Store(true)
	waiting := func() bool {
		t.Helper()
		sights := s.d.checkBuckets(t.Context(), []*bucketPatrol{r.patrol})
		if sights[0].err != nil {
			t.Fatal(sights[0].err)
		}
		return sights[0].waiting
	}
	at := time.Now()
	r.clock.observe(at, at, s.Now.UnixMicro())
	if waiting() {
		t.Error("something waits in an empty bucket")
	}
	for i := range 300 {
		s.Put(fmt.Sprint("j", i), fmt.Sprint("f", i), shaper.StateInFlight)
	}
	s.Put("w", "astray", shaper.StateQueued)
	if waiting() {
		t.Error("something waits, and is not in the turn queue")
	}
	s.Step(time.Millisecond)
	w := patrolOf(r)
	for range 2 {
		must.OK(t, w.sweep(t.Context(), s.Now.UnixMicro(), true))
	}
	s.WantState(shaper.StateQueued, "j0", "j299", "w")
	if s.TurnOf("astray") != 0 || s.TurnOf("f299") != 0 || !waiting() {
		t.Errorf("turns in %s and %s, waiting %t", s.TurnOf("astray"), s.TurnOf("f299"), waiting())
	}
	if w.auditing || w.missing != 0 || w.nextAudit.IsZero() {
		t.Errorf("the audit came to %+v", w)
	}
	// The calendar has a clock of its own, ahead of the server's.
	s.Redis.Del(t.Context(), store.BucketKeys("b").Due())
	s.Redis.ZAdd(t.Context(), store.BucketKeys("b").Due(), redis.Z{Member: "f1", Score: float64(s.Now.Add(time.Hour).UnixMicro())})
	if waiting() {
		t.Error("what is due in an hour waits")
	}
	s.Redis.HSet(t.Context(), store.BucketKeys("b").Pace(), "offset", time.Hour.Microseconds()+1000)
	if !waiting() {
		t.Error("what is due by the engine's clock does not wait")
	}
}

// An audit finds the job that came first over all flows, however many there are, and keeps it. The next one keeps another, or none.
func TestAuditFindsTheOldest(t *testing.T) {
	t.Parallel()
	s := steppedOn(t, rig.NewFlowing(t), rig.NewWaiting())
	r, k := s.bucketLoop(), store.BucketKeys("b")
	w := patrolOf(r)
	oldest := func() string {
		t.Helper()
		for w.begin(true); w.auditing; {
			must.OK(t, w.sweep(t.Context(), s.Now.UnixMicro(), true))
		}
		return s.Redis.HGet(t.Context(), k.Count(), "oldest").Val()
	}
	put := func(id, flow string, state shaper.State, came int) {
		s.Put(id, flow, state)
		s.Redis.HSet(t.Context(), k.Body(), id, fmt.Sprintf(`1 %d 00000000000cn001 {"f":%q}`+"\nx", came, flow))
	}
	must.Equal(t, oldest(), "", "of an empty bucket it keeps")
	put("flying", "busy", shaper.StateInFlight, 1)
	s.Redis.ZAdd(t.Context(), k.Leases(), redis.Z{Member: "flying", Score: float64(s.Now.Add(time.Hour).UnixMicro())})
	for i := range 1200 {
		put(fmt.Sprint("j", i), fmt.Sprint("f", i), shaper.StateQueued, 1000+(i+1200-777)%1200)
	}
	if got, want := oldest(), fmt.Sprintf("1000 %d j777", s.Now.UnixMicro()); got != want {
		t.Errorf("it keeps %q, want %q", got, want)
	}
	s.Redis.Del(t.Context(), k.Queue("f777")) // that job is retried later
	if got, want := oldest(), fmt.Sprintf("1001 %d j778", s.Now.UnixMicro()); got != want {
		t.Errorf("then it keeps %q, want %q", got, want)
	}
	for i := range 1200 {
		s.Redis.HDel(t.Context(), k.Flows(), fmt.Sprint("f", i))
	}
	must.Equal(t, oldest(), "", "of a bucket in which nothing waits it keeps")
}
