package producer_test

import (
	"context"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/producer"
)

// newEnding is a client of a bucket "b" on a miniredis.
func newEnding(t *testing.T) (*rig.Actors, *redis.Client) {
	t.Helper()
	conn := redistest.ClientOf(t, redistest.Miniredis(t))
	client := must.Get(rig.NewActors(producer.Config{Redis: conn, Buckets: []shaper.Bucket{rig.Bucket("b", 1)}}))(t)
	return client, conn
}

// The id of a job that ended undelivered is no duplicate: nothing would ever leave.
func TestIDThatEndedUndelivered(t *testing.T) {
	t.Parallel()
	client, conn := newEnding(t)
	job := func(id string) shaper.Job { return shaper.Job{Bucket: "b", ID: id, Payload: []byte("x")} }
	ids := []string{"done", "dead", "dropped", "cancelled", "queued"}
	for _, id := range ids {
		if receipts, err := client.Enqueue(t.Context(), job(id)); err != nil || receipts[0].Refusal != nil {
			t.Fatalf("%+v, %v", receipts, err)
		}
	}
	rig.SettleHead(t, conn, "done", "1")
	rig.SettleHead(t, conn, "dead", "3")
	rig.SettleHead(t, conn, "dropped", "3")
	if state, err := client.Op.As("anna").Bucket("b").Dead().Drop(t.Context(), "dropped"); err != nil || state != shaper.StateDropped {
		t.Fatal(state, err)
	}
	if state, err := client.Cancel(t.Context(), "b", "cancelled"); err != nil || state != shaper.StateCancelled {
		t.Fatal(state, err)
	}
	jobs := make([]shaper.Job, len(ids))
	for i, id := range ids {
		jobs[i] = job(id)
	}
	receipts := must.Get(client.Enqueue(t.Context(), jobs...))(t)
	for i, want := range []struct {
		state  shaper.State
		detail string // "" a duplicate
	}{
		{shaper.StateDone, ""},
		{shaper.StateDead, `job "dead" of bucket "b" is a dead letter and will not be delivered: redrive it, or use another id`},
		{shaper.StateDropped, `job "dropped" of bucket "b" was dropped and will not be delivered: use another id`},
		{shaper.StateCancelled, `job "cancelled" of bucket "b" was cancelled and will not be delivered: use another id`},
		{shaper.StateQueued, ""},
	} {
		got := receipts[i]
		switch {
		case got.State != want.state:
			t.Errorf("%s is %s", got.ID, got.State)
		case want.detail == "" && (got.Refusal != nil || !got.Duplicate):
			t.Errorf("%s: %+v", got.ID, got)
		case want.detail != "" && (got.Refusal == nil || got.Duplicate || got.Refusal.Reason != shaper.ReasonIDEnded ||
			got.Refusal.Detail != want.detail || got.Refusal.RetryAfter != 0 || !got.ETA.IsZero()):
			t.Errorf("%s: %+v %+v", got.ID, got, got.Refusal)
		}
	}
}

// losesReply loses the reply of the first enqueue script, and has something happen then.
type losesReply struct {
	once sync.Once
	then func()
}

func (*losesReply) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*losesReply) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (l *losesReply) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if args := cmd.Args(); err == nil && len(args) > 3 && args[3] == store.BucketKeys("b").Body() { // of its scripts only enqueue begins so
			l.once.Do(func() {
				l.then()
				err = io.EOF
			})
		}
		return err
	}
}

// A batch whose reply was lost is sent again by the client itself: what it admitted and
// ended since is admitted, no refusal.
func TestResendOfAnEndedJobIsNoRefusal(t *testing.T) {
	t.Parallel()
	other, conn := newEnding(t)
	lost := false
	conn2 := redis.NewClient(conn.Options())
	t.Cleanup(func() { _ = conn2.Close() })
	conn2.AddHook(&losesReply{then: func() {
		lost = true
		if state, err := other.Cancel(context.Background(), "b", "mine"); err != nil || state != shaper.StateCancelled {
			t.Error(state, err)
		}
	}})
	client := must.Get(rig.NewActors(producer.Config{Redis: conn2, Buckets: []shaper.Bucket{rig.Bucket("b", 1)}}))(t)
	receipts, err := client.Enqueue(t.Context(), shaper.Job{Bucket: "b", ID: "mine", Payload: []byte("x")})
	if err != nil || !lost || receipts[0].Refusal != nil || !receipts[0].Duplicate || receipts[0].State != shaper.StateCancelled {
		t.Errorf("lost %t: %+v, %v", lost, receipts, err)
	}
	receipts, err = client.Enqueue(t.Context(), shaper.Job{Bucket: "b", ID: "mine", Payload: []byte("x")})
	if err != nil || receipts[0].Refusal == nil || receipts[0].Refusal.Reason != shaper.ReasonIDEnded {
		t.Errorf("%+v, %v", receipts, err)
	}
}

// An id of the proxy whose job was not done is free, but not for a batch that is sent again: what that let in has ended since, and is not sent twice.
func TestResendOfAnIDOfTheProxy(t *testing.T) {
	t.Parallel()
	other, conn := newEnding(t)
	lost, id := false, shaper.ProxyID+"mine"
	conn2 := redis.NewClient(conn.Options())
	t.Cleanup(func() { _ = conn2.Close() })
	conn2.AddHook(&losesReply{then: func() {
		lost = true
		if state, err := other.Cancel(context.Background(), "b", id); err != nil || state != shaper.StateCancelled {
			t.Error(state, err)
		}
	}})
	client := must.Get(rig.NewActors(producer.Config{Redis: conn2, Buckets: []shaper.Bucket{rig.Bucket("b", 1)}}))(t)
	job := shaper.Job{Bucket: "b", ID: id, Payload: []byte("x"), Once: true, MaxWait: time.Hour}
	receipts, err := client.Enqueue(t.Context(), job)
	if err != nil || !lost || receipts[0].Refusal != nil || receipts[0].State != shaper.StateCancelled {
		t.Errorf("lost %t: %+v, %v", lost, receipts, err)
	}
	for _, isThere := range []bool{false, true} {
		receipts, err = client.Enqueue(t.Context(), job)
		if err != nil || receipts[0].Refusal != nil || receipts[0].State != shaper.StateQueued || receipts[0].Duplicate != isThere {
			t.Errorf("%+v, %v", receipts, err)
		}
	}
}
