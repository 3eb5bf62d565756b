package operator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/stored"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// A bucket of 100/s and its flows are slowed from the rate that its calendar has now, 20/s.
func TestSlowedFromTheRateInForce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		adaptive int // departures in 1000 s
		want     float64
	}{{50_000, 1}, {5_000, 0.25}} {
		b := rig.Bucket("b", 100)
		flow := shaper.DefaultFlowSettings()
		flow.Key = shaper.FlowKeyJob
		b.Flow = &flow
		s, ctx, keys := rig.NewBench(t, b), t.Context(), store.BucketKeys("b")
		must.OK(t, s.Client.JoinPools(ctx))
		s.Put("job", "a", shaper.StateQueued)
		said := stored.Downstream{RateCount: int64(c.adaptive), RatePer: 1_000_000_000, ChangedAt: s.Now.UnixMicro(), Reason: "http_429"}.String()
		s.Redis.HSet(ctx, keys.Conf(), store.FieldTimetable, fmt.Sprintf("%d o 20 1000000 0 0;", s.Now.Add(-time.Hour).UnixMicro()))
		s.Redis.HSet(ctx, keys.Pace(), "down", said)
		s.Redis.HSet(ctx, keys.Flows(), "a", fmt.Sprintf("@%s %s", said, s.Redis.HGet(ctx, keys.Flows(), "a").Val()))

		infos := must.Get(s.Client.Op.BucketInfos(ctx, "b"))(t)
		of := must.Get(s.Client.Op.Bucket("b").Flow("a").Info(ctx))(t)
		job := must.Get(s.Client.Job(ctx, "b", "job"))(t)
		for what, down := range map[string]*shaper.Downstream{
			"bucket": infos[0].Downstream, "flow": of.Downstream, "bucket of the job": job.Downstream, "flow of the job": job.OfFlow.Downstream,
		} {
			if down == nil || down.Factor != c.want || down.Slowed() != (c.want < 1) {
				t.Errorf("%s at %d in 1000 s: %+v, want a part of %v", what, c.adaptive, down, c.want)
			}
		}
	}
}
