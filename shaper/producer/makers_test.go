package producer_test

import (
	"fmt"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/producer"
)

// A caller that makes more flows than there may be leaves half of them to others, and is told which setting refuses it.
func TestOneCallerMakesManyFlows(t *testing.T) {
	t.Parallel()
	const most = 200
	b := rig.Flowing("flows", shaper.FlowKeyJob)
	b.Flow.MaxFlows, b.Capacity = most, 10*most
	c := must.Get(rig.NewActors(producer.Config{Redis: rig.Connect(t, redistest.Start(t).Addr()), Buckets: []shaper.Bucket{b}}))(t)
	of := func(caller string, n int) []shaper.Receipt {
		jobs := make([]shaper.Job, n)
		for i := range jobs {
			jobs[i] = shaper.Job{Bucket: "flows", Flow: fmt.Sprint(caller, "-", i), Caller: caller, URL: "https://a.example/", Payload: []byte("x")}
		}
		receipts := must.Get(c.Enqueue(t.Context(), jobs...))(t)
		return receipts
	}
	in, detail := 0, ""
	for range 2 { // the second time its flows are there
		in = 0
		for _, r := range of("attacker", most+100) {
			if r.Refusal == nil {
				in++
			} else if r.Refusal.Reason != shaper.ReasonTooManyFlows {
				t.Fatalf("%+v", r.Refusal)
			} else {
				detail = r.Refusal.Detail
			}
		}
	}
	if in < most*4/10 || in > most/2 {
		t.Errorf("the attacker has %d of %d flows", in, most)
	}
	want := fmt.Sprintf(`caller "attacker" has made %d flows of bucket "flows" or more, about as many as it may, and "attacker-%d" would be another one: `+
		"retry in 1s or raise flow.max_per_caller, which is half of flow.max_flows where it is not set", in, most+99)
	must.Equal(t, detail, want, "refused with")
	if r := of("victim", 1)[0]; r.Refusal != nil {
		t.Errorf("the first flow of another caller: %s", r.Refusal.Detail)
	}
}
