package producer_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
)

// A batch of generated ids whose reply is lost is answered as admitted, not as
// duplicates, and is there once.
func TestLostReplyOfEnqueueIsNoDuplicate(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t, rig.Bucket("b", 1))
	w.Enqueue(1)
	lost := w.Proxy.DropReply(lua.Enqueue.SHA() + "\r\n")
	receipts, err := w.Client.Enqueue(t.Context(), shaper.Job{Bucket: "b", Payload: []byte("x")}, shaper.Job{Bucket: "b", ID: "mine", Payload: []byte("x"), Delay: time.Hour})
	<-lost
	if err != nil || receipts[0].Duplicate || receipts[0].State != shaper.StateQueued || receipts[1].State != shaper.StateScheduled {
		t.Errorf("%+v, %v", receipts, err)
	}
	again, err := w.Client.Enqueue(t.Context(), shaper.Job{Bucket: "b", ID: "mine", Payload: []byte("x"), Delay: time.Hour})
	if err != nil || !again[0].Duplicate {
		t.Errorf("%+v, %v", again, err)
	}
	infos, err := w.Client.Op.BucketInfos(t.Context())
	if err != nil || infos[0].Unfinished != 2 || infos[0].Scheduled != 1 {
		t.Errorf("%+v, %v", infos, err)
	}
}

// Frozen: an enqueue gives up within its timeout; when Redis is back the same
// ids are the same jobs.
func TestEnqueueWhileFrozen(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t, rig.Bucket("b", 1))
	w.Enqueue(1)
	w.Proxy.Freeze()
	began := time.Now()
	job := shaper.Job{Bucket: "b", ID: "x", Payload: []byte("x")}
	receipts, err := w.Client.Enqueue(t.Context(), job)
	if err == nil || !redisconn.Unavailable(err) || time.Since(began) > time.Minute || receipts[0].ID != "x" {
		t.Errorf("after %s: %+v, %v", time.Since(began), receipts, err)
	}
	w.Proxy.Thaw()
	receipts, err = w.Client.Enqueue(t.Context(), job)
	if err != nil || receipts[0].Refusal != nil {
		t.Errorf("%+v, %v", receipts, err)
	}
	infos, err := w.Client.Op.BucketInfos(t.Context())
	if err != nil || infos[0].Unfinished != 2 {
		t.Errorf("%+v, %v", infos, err)
	}
}

// With as many dead letters as there may be, a bucket refuses jobs, says what to do and, as far as it is known, until when.
func TestDeadFull(t *testing.T) {
	t.Parallel()
	b := rig.Bucket("b", 10)
	b.DeadCapacity, b.DeadBytes = 2, 0
	s := rig.NewBench(t, b)
	s.Enqueue("a", "b", "in")
	rig.SettleHead(t, s.Redis, "a", "3")
	s.Step(time.Minute)
	rig.SettleHead(t, s.Redis, "b", "3")
	refusal := func(b shaper.Bucket) *shaper.Refusal {
		t.Helper()
		must.OK(t, errors.Join(s.Client.Reconfigure([]shaper.Bucket{b}), s.Client.JoinPools(t.Context())))
		receipts, err := s.Client.Enqueue(t.Context(), shaper.Job{Bucket: "b", Payload: []byte("{}")})
		if err != nil || receipts[0].Refusal == nil || receipts[0].Refusal.Reason != shaper.ReasonDeadFull {
			t.Fatalf("%+v, %v", receipts, err)
		}
		return receipts[0].Refusal
	}
	forEver, kept, bytesBound := b, b, b
	kept.DeadRetention = time.Hour
	bytesBound.DeadCapacity, bytesBound.DeadBytes = 0, 10
	info, err := s.Client.Op.BucketInfos(t.Context())
	if err != nil || info[0].Dead != 2 || info[0].DeadCapacity != 2 || info[0].DeadMaxBytes != 0 {
		t.Fatalf("%+v, %v", info, err)
	}
	for _, test := range []struct {
		b      shaper.Bucket
		wait   time.Duration
		detail string
	}{
		{forEver, time.Minute, `bucket "b" takes no jobs, as it has too many dead letters (2/2): redrive or drop some, or raise dead_capacity; ` +
			`it is not known when there is room, so retry in 1m0s to see`},
		{kept, 59*time.Minute + 15*time.Second, `bucket "b" takes no jobs, as it has too many dead letters (2/2): redrive or drop some, or raise dead_capacity; ` +
			`retry in 59m15s, when dead_retention has ended for enough of them`},
		{bytesBound, time.Minute, fmt.Sprintf(`bucket "b" takes no jobs, as it has too many bytes of dead letters (%d/10): redrive or drop some, or raise dead_bytes; `+
			`it is not known when there is room, so retry in 1m0s to see`, info[0].DeadBytes)},
	} {
		if got := refusal(test.b); got.Detail != test.detail || got.RetryAfter != test.wait {
			t.Errorf("%s: %s", got.RetryAfter, got.Detail)
		}
	}
	// What is in already is no new job, and may still die.
	if receipts, err := s.Client.Enqueue(t.Context(), shaper.Job{Bucket: "b", ID: "in", Payload: []byte("{}")}); err != nil || !receipts[0].Duplicate {
		t.Errorf("%+v, %v", receipts, err)
	}
	rig.SettleHead(t, s.Redis, "in", "3")
	if redriven, err := s.Client.Op.As("anna").Bucket("b").Dead().Redrive(t.Context(), "a", "b"); err != nil || redriven.Moved != 2 {
		t.Errorf("%+v, %v", redriven, err)
	}
	must.OK(t, errors.Join(s.Client.Reconfigure([]shaper.Bucket{b}), s.Client.JoinPools(t.Context())))
	if receipts, err := s.Client.Enqueue(t.Context(), shaper.Job{Bucket: "b", Payload: []byte("{}")}); err != nil || receipts[0].Refusal != nil {
		t.Errorf("with room again: %+v, %v", receipts, err)
	}
}
