package shaper

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Outcomes of many flows travel in one script, and each flow gets its own.
func TestSettlementsOfFlows(t *testing.T) {
	t.Parallel()
	s := steppedOn(t, newFlowing(t), newWaiting())
	r := s.drain()
	var batch []*settlement
	for i := range settleBatch {
		flow := fmt.Sprint("f", i)
		s.put(fmt.Sprint("w", i), flow, StateQueued)
		batch = append(batch, &settlement{job: s.lease(fmt.Sprint("j", i), flow), result: ResultReturned})
	}
	r.sendSettlements(batch)
	for i := range settleBatch {
		flow := fmt.Sprint("f", i)
		ids := s.redis.LRange(t.Context(), bucketKeys("b").queue(flow), 0, -1).Val()
		if want := fmt.Sprintf("[j%d w%d]", i, i); fmt.Sprint(ids) != want || s.turnOf(flow) != 0 {
			t.Errorf("flow %s: %v, its turn is in %s", flow, ids, s.turnOf(flow))
		}
	}
	if info, err := s.client.op.BucketInfos(t.Context(), "b"); err != nil || info[0].Flows != settleBatch || info[0].FlowsWait != settleBatch ||
		!info[0].HasFlows || info[0].InFlight != 0 || info[0].Waiting != 2*settleBatch {
		t.Errorf("bucket %+v, %v", info, err)
	}
}

// A patrol sees by the calendar whether there is something to send; a sweep takes
// back what ran out in any flow, and mends the calendar.
func TestPatrolOfFlows(t *testing.T) {
	t.Parallel()
	s := steppedOn(t, newFlowing(t), newWaiting())
	r := s.drain()
	r.setSleeping(true)
	waiting := func() bool {
		t.Helper()
		sights := s.d.look(t.Context(), []*drain{r})
		if sights[0].err != nil {
			t.Fatal(sights[0].err)
		}
		return sights[0].waiting
	}
	at := time.Now()
	r.clock.observe(at, at, s.now.UnixMicro())
	if waiting() {
		t.Error("something waits in an empty bucket")
	}
	for i := range 300 {
		s.put(fmt.Sprint("j", i), fmt.Sprint("f", i), StateInFlight)
	}
	s.put("w", "astray", StateQueued)
	if waiting() {
		t.Error("something waits, and is not on the calendar")
	}
	s.step(time.Millisecond)
	var w sweepWatch
	for range 2 {
		if err := r.sweep(t.Context(), &w, s.now.UnixMicro(), true); err != nil {
			t.Fatal(err)
		}
	}
	s.wantState(StateQueued, "j0", "j299", "w")
	if s.turnOf("astray") != 0 || s.turnOf("f299") != 0 || !waiting() {
		t.Errorf("turns in %s and %s, waiting %t", s.turnOf("astray"), s.turnOf("f299"), waiting())
	}
	if w.auditing || w.missing != 0 || w.nextAudit.IsZero() {
		t.Errorf("the audit came to %+v", w)
	}
	// The calendar has a clock of its own, ahead of the server's.
	s.redis.Del(t.Context(), bucketKeys("b").due())
	s.redis.ZAdd(t.Context(), bucketKeys("b").due(), redis.Z{Member: "f1", Score: float64(s.now.Add(time.Hour).UnixMicro())})
	if waiting() {
		t.Error("what is due in an hour waits")
	}
	s.redis.HSet(t.Context(), bucketKeys("b").pace(), "offset", time.Hour.Microseconds()+1000)
	if !waiting() {
		t.Error("what is due by the calendar's clock does not wait")
	}
}
