package test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// TestExactBound is P3: whoever enqueues as fast as he can through two producers, never is there one job more than
// bucket, group and flow may have, and none less.
func TestExactBound(t *testing.T) {
	t.Parallel()
	const callers, capacity, groupCapacity, flowCapacity = 16, 100, 60, 25
	server := redistest.Start(t)
	urls := harness.Producers(t, server.URL(), 2, fmt.Sprintf(`
[[buckets]]
name = "bounded"
rate = "1/h"
capacity = %d
[buckets.shed]
low = 100
normal = 100
high = 100
[buckets.flow]
key = "job"
capacity = %d
[buckets.group]
key = "job"
capacity = %d
[buckets.webhook]
url = "http://127.0.0.1:9/"
`, capacity, flowCapacity, groupCapacity))
	asker := harness.NewAsker(t, callers)
	// Group a fills one flow, then itself; group b what is left of the bucket.
	for _, step := range []struct {
		group  string
		flows  int
		expect int
		reason string
	}{{"a", 1, flowCapacity, "flow-full"}, {"a", 8, groupCapacity - flowCapacity, "group-full"}, {"b", 8, capacity - groupCapacity, "bucket-full"}} {
		var mu sync.Mutex
		answers := map[string]int{}
		var all sync.WaitGroup
		for caller := range callers {
			all.Go(func() {
				for i := range 8 {
					body := fmt.Sprintf(`{"payload":{},"group":%q,"flow":"f%d"}`, step.group, (caller+i)%step.flows)
					status, answer := asker.Post(t.Context(), urls[caller%2]+"/v1/buckets/bounded/jobs", body)
					if status == http.StatusTooManyRequests && strings.Contains(answer, step.reason) {
						answer = step.reason
					} else {
						answer = ""
					}
					mu.Lock()
					answers[fmt.Sprint(status, answer)]++
					mu.Unlock()
				}
			})
		}
		all.Wait()
		t.Logf("group %s, %d flows: %v", step.group, step.flows, answers)
		if answers["202"] != step.expect {
			t.Errorf("group %s, %d flows: %d were let in, want %d: %v", step.group, step.flows, answers["202"], step.expect, answers)
		}
		if refused := answers["429 "+step.reason] + answers["429"+step.reason]; refused == 0 {
			t.Errorf("group %s, %d flows: nobody was refused as %s: %v", step.group, step.flows, step.reason, answers)
		}
	}
	if n := server.Client().HLen(t.Context(), "tundish:{bounded}:b:bounded:body").Val(); n != capacity {
		t.Errorf("the bucket holds %d jobs, want %d", n, capacity)
	}
}
