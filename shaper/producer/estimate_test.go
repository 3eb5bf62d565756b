package producer_test

import (
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
)

// A producer that runs learns from the script that its bucket has quotas since, of the bucket or of its flows, and its receipts count them.
func TestReceiptCountsNewQuotas(t *testing.T) {
	t.Parallel()
	plain, flows := rig.Pooled("plain", 100, 1, shaper.Pool{Name: "p", Rate: rig.PerSecond(1000)}), rig.Pooled("flows", 100, 1, shaper.Pool{Name: "p", Rate: rig.PerSecond(1000)})
	flow := shaper.DefaultFlowSettings()
	flow.Key = shaper.FlowKeyJob
	flows.Flow = &flow
	w := rig.NewPoolWorld(t, plain, flows)
	for bucket, field := range map[string]string{"plain": "quotas", "flows": "flow_quotas"} {
		enqueue := func(n int) []shaper.Receipt {
			t.Helper()
			jobs := make([]shaper.Job, n)
			for i := range jobs {
				jobs[i] = shaper.Job{Bucket: bucket, Payload: []byte("x")}
				if bucket == "flows" {
					jobs[i].Flow = "f"
				}
			}
			receipts, err := w.Client.Enqueue(t.Context(), jobs...)
			if err != nil || receipts[0].Refusal != nil {
				t.Fatalf("%s: %v, %+v", bucket, err, receipts)
			}
			return receipts
		}
		if r := enqueue(3); r[2].ETA.Sub(r[0].ETA) > time.Second {
			t.Errorf("%s: without a quota the third leaves %s after the first", bucket, r[2].ETA.Sub(r[0].ETA))
		}
		must.OK(t, w.Server.Client().HSet(t.Context(), "tundish:{p}:b:"+bucket+":settings", field, "5 60000000;").Err())
		const window = 61200 * time.Millisecond // with the margin
		r := enqueue(9)
		if d := r[1].ETA.Sub(r[0].ETA); d > time.Second {
			t.Errorf("%s: the fifth leaves %s after the fourth", bucket, d)
		}
		for i, n := range map[int]time.Duration{2: 1, 6: 1, 7: 2} {
			if d := r[i].ETA.Sub(r[0].ETA); d < n*window-time.Second || d > n*window+time.Second {
				t.Errorf("%s: number %d leaves %s after the fourth", bucket, 4+i, d)
			}
		}
	}
}
