package workers

import (
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/hostile"
	"github.com/tundish-io/tundish/shaper"
)

// Responses of receivers cost no tree of values, those to batches neither. A rule that looks into each item takes a cursor for each, which is free again
// at once: that counts here, and is what the bound is for. The time is linear in the bytes.
func TestResponsesCostNoTree(t *testing.T) { //nolint:paralleltest // measures the heap
	const size, most, slack = 256 << 10, 60, 256 << 10
	rules := Policy{Rules: Rules{
		{Status: []string{"2xx"}, Pointer: "/error/*/code", Value: "x", Outcome: RuleHold, Wait: "/error/wait"},
		{Status: []string{"201"}, Outcome: RuleItems, Items: "/items", ItemStatus: "/status", ItemID: "/id"},
		{Status: []string{"202"}, Outcome: RuleItems, Items: "/items", ItemStatus: "/*/status"},
	}}
	worst, highest := "", 0.0
	smaller := maps.Collect(hostile.Values(size / hostile.Factor))
	for kind, value := range hostile.Values(size) {
		for _, shape := range []string{`@`, `{"error":@}`, `{"errors":true,"items":@}`, `{"results":@}`, `{"items":[{"status":@,"id":@}]}`, `{"results":[{"id":@,"status":@}]}`} {
			body := []byte(strings.ReplaceAll(shape, "@", value))
			batch := batchOf("a", "b", "c")
			judge := func(body []byte) {
				for _, status := range []int{200, 201, 202, 207, 429} {
					for _, policy := range []Policy{{}, rules} {
						policy.Judge(&Response{Status: status, Header: http.Header{}, Body: body, At: noon})
						answer := &shaper.Answer{Status: status, Headers: http.Header{"Content-Type": {"application/json"}}, Body: body}
						policy.Outcomes(batch, shaper.Outcome{Result: shaper.ResultDone, Status: status, Answer: answer}, time.Now())
					}
				}
			}
			cost := hostile.CostOf(func() { judge(body) })
			small := []byte(strings.ReplaceAll(shape, "@", smaller[kind]))
			if times, isLinear := hostile.Growth(cost.Time, func() { judge(small) }, func() { judge(body) }); !isLinear {
				t.Errorf("%s in %s: %d times the bytes take %.0f times as long", kind, shape, hostile.Factor, times)
			}
			if per := float64(cost.Heap-slack) / float64(len(body)); per > highest {
				highest, worst = per, kind+" in "+shape
			}
		}
	}
	if t.Logf("heap: %.2f bytes for each byte at most, of %s, read 20 times", highest, worst); highest > 20*most {
		t.Errorf("%.1f bytes for each byte of %s: want %d at most, 20 times", highest, worst, most)
	}
}
