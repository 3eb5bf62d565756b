package operator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/producer"
)

// A flow is redriven by its own dead letters, however many others there are. The index is built from the dead letters alone.
func TestRedriveDisabledLooksAtItsOwn(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client()
	b := rig.Bucket("b", 100)
	flow := shaper.DefaultFlowSettings()
	flow.Key = shaper.FlowKeyJob
	b.Flow = &flow
	actors := must.Get(rig.NewActors(producer.Config{Redis: client, Buckets: []shaper.Bucket{b}}))(t)
	ctx, k, now := t.Context(), store.BucketKeys("b"), time.Now().UnixMicro()
	must.OK(t, actors.JoinPools(ctx))
	pipe := client.Pipeline()
	for i := range 2000 { // of 1000 flows, and their deaths are mixed
		id := fmt.Sprint("j", i)
		sealed := must.Get(codec.Seal(nil, &shaper.Job{Bucket: "b", ID: id, Flow: fmt.Sprint("f", i%1000), Payload: []byte("x")}, codec.Sealing{}))(t)
		codec.SetIndex(sealed, 1)
		pipe.HSet(ctx, k.Body(), id, fmt.Sprintf("0 %d %s", now, sealed))
		pipe.HSet(ctx, k.Meta(), id, `5 1 0 0 0 c {"cause":"`+shaper.CauseFlowDisabled+`"}`)
		pipe.ZAdd(ctx, k.Dead(), redis.Z{Member: id, Score: float64(now + int64(i)*time.Second.Microseconds())})
		if i == 1002 {
			pipe.HSet(ctx, k.Meta(), id, `5 1 0 0 0 c {"cause":"`+shaper.CausePermanent+`"}`)
		}
	}
	must.Get(pipe.Exec(ctx))(t)
	redrive := func(flow string, want int) (trips int64) {
		t.Helper()
		hook := &rig.TripHook{At: -1}
		client.AddHook(hook)
		if sum, err := actors.Op.As("anna").Bucket("b").Flow(flow).RedriveDisabled(ctx); err != nil || sum.Moved != want || sum.FlowFull+sum.Full > 0 {
			t.Errorf("flow %s: %+v, %v, want %d", flow, sum, err, want)
		}
		return hook.Seen.Load()
	}
	redrive("f0", 2)
	if trips := redrive("f1", 2); trips > 15 {
		t.Errorf("the second flow took %d round trips, as if it had looked at all letters", trips)
	}
	redrive("f2", 1)
	redrive("f1", 0)
	for id, want := range map[string]shaper.State{"j0": shaper.StateQueued, "j1000": shaper.StateQueued, "j1001": shaper.StateQueued, "j1002": shaper.StateDead, "j3": shaper.StateDead} {
		must.Equal(t, must.Get(actors.Job(ctx, "b", id))(t).State, want, "job %s is", id)
	}
}
