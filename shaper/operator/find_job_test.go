package operator_test

import (
	"fmt"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
)

// A job is found in each bucket that has one of its id, wherever that lives, and also once it has ended.
func TestHaveJob(t *testing.T) {
	t.Parallel()
	conn := redistest.Start(t).Client()
	buckets := []shaper.Bucket{rig.Bucket("one", 1), rig.In(rig.PoolNamed("vendor"), rig.Bucket("pooled", 1)), rig.Bucket("empty", 1)}
	client := must.Get(producer.New(producer.Config{Timeout: rig.Patience, Redis: conn, Buckets: buckets}))(t)
	t.Cleanup(client.Close)
	for _, job := range []shaper.Job{{Bucket: "one", ID: "a"}, {Bucket: "pooled", ID: "a"}, {Bucket: "pooled", ID: "b"}} {
		job.Payload = []byte("x")
		if receipts, err := client.Enqueue(t.Context(), job); err != nil || receipts[0].Refusal != nil {
			t.Fatal(receipts, err)
		}
	}
	must.Get(client.Cancel(t.Context(), "pooled", "b"))(t)
	op, err := operator.New(operator.Config{Timeout: rig.Patience, Redis: conn, Buckets: buckets[:1]}) // which knows nothing of the pool
	must.OK(t, err)
	for id, want := range map[string]string{"a": "[one pooled]", "b": "[pooled]", "c": "[]"} {
		found, err := op.HaveJob(t.Context(), id, "one", "pooled", "empty", "never-used")
		if err != nil || fmt.Sprint(found) != want {
			t.Errorf("%s is in %v, want %s, %v", id, found, want, err)
		}
	}
}
