package dispatcher

import (
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// idOf is the id of the job of which a callback tells.
func idOf(body map[string]any) any {
	data, _ := body["data"].(map[string]any)
	return data["id"]
}

// Callbacks of which the flow has to exist in the bucket that delivers them, and does not, wait until an operator makes it. Others go on.
func TestCallbacksWaitForTheirFlow(t *testing.T) {
	t.Parallel()
	w := newTelling(t, func(b, told *shaper.Bucket) {
		b.Callbacks.URL = "https://default.example/"
		flow := shaper.DefaultFlowSettings()
		flow.Key = shaper.FlowKeyJob
		b.Flow = &flow
		exists := flow
		exists.MustExist = true
		told.Flow = &exists
	})
	op := must.Get(operator.New(operator.Config{Redis: w.redis, Buckets: w.buckets}))(t)
	create := func(flow string) {
		var patch operator.FlowPatch
		_ = patch.Put(shaper.FlowWeight, "1")
		must.Get(op.As("anna").Bucket("told").Flow(flow).Set(t.Context(), patch))(t)
	}
	must.OK(t, w.client.JoinPools(t.Context()))
	create("acme")
	w.run()
	w.enqueue(shaper.Job{ID: "waits", Flow: "acne"}, shaper.Job{ID: "goes", Flow: "acme"})
	if a, body := w.next(); a.Flow != "acme" || idOf(body) != "goes" {
		t.Errorf("flow %q: %v", a.Flow, body)
	}
	if counts := w.counts(); counts != "1 1 0" && counts != "1 1 1" { // the job of the other one may be in flight still
		t.Errorf("callbacks and jobs: %s", counts)
	}
	create("acne")
	if a, body := w.next(); a.Flow != "acne" || idOf(body) != "waits" {
		t.Errorf("flow %q: %v", a.Flow, body)
	}
}
