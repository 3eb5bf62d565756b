package producer_test

import (
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
)

// Each refused call gets a place behind the previous one, as far from it as the bucket sends one job. The jobs of one call share a place.
func TestRefusedCallsReturnOneAfterTheOther(t *testing.T) {
	t.Parallel()
	b := rig.Bucket("b", 1)
	b.Rate, b.Capacity = rig.Rate("12/m"), 1
	w := rig.NewWorld(t, b)
	enqueue := func(n int) (receipts []shaper.Receipt) {
		t.Helper()
		jobs := make([]shaper.Job, n)
		for i := range jobs {
			jobs[i] = shaper.Job{Bucket: "b", Payload: []byte("{}")}
		}
		receipts = must.Get(w.Client.Enqueue(t.Context(), jobs...))(t)
		return receipts
	}
	enqueue(1)
	var last time.Duration
	for call := range 5 {
		receipts := enqueue(2)
		first, second := receipts[0].Refusal, receipts[1].Refusal
		if first == nil || second == nil || first.Spread != second.Spread {
			t.Fatalf("call %d: %+v and %+v, want both refused, with one place", call, first, second)
		}
		if call > 0 && first.Spread <= last {
			t.Errorf("call %d returns %s later, and the one before it %s", call, first.Spread, last)
		}
		last = first.Spread
	}
}
