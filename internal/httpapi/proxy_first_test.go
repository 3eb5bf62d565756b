package httpapi_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/stored"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// A client goes before all jobs that nobody waits for, however long these have waited, and also before retries that are due. It is refused only for what
// is really before it.
func TestProxyGoesFirst(t *testing.T) {
	t.Parallel()
	p := newProxyRig(t)
	var jobs []shaper.Job
	for n, job := range []shaper.Job{{}, {}, {Priority: shaper.PriorityHigh}, {Priority: shaper.PriorityLow}, {Delay: time.Microsecond}} {
		job.Bucket, job.URL = "slow", fmt.Sprint("/job/", n)
		jobs = append(jobs, job)
	}
	receipts := must.Get(p.client.Enqueue(t.Context(), jobs...))(t)
	body := stored.Key("slow", "body")
	came := regexp.MustCompile(`^(\S+) (\d+) `)
	for _, receipt := range receipts { // an hour ago
		text := p.redis.HGet(t.Context(), body, receipt.ID).Val()
		old := fmt.Sprint(time.Now().Add(-time.Hour).UnixMicro())
		must.OK(t, p.redis.HSet(t.Context(), body, receipt.ID, came.ReplaceAllString(text, "${1} "+old+" ")).Err())
	}
	// The time-out is two hours, and there is a slot an hour: behind the others it would be refused.
	first := p.start(t.Context(), "slow")
	p.untilJobs("slow", 6)
	second := p.start(t.Context(), "slow")
	p.untilJobs("slow", 7)
	for _, id := range p.redis.HKeys(t.Context(), body).Val() {
		info, err := p.client.Job(t.Context(), "slow", id)
		if err != nil || info.URL == "/x" && info.Position > 1 {
			t.Errorf("%s is told %d are ahead of it: %v", id, info.Position, err)
		}
	}
	var patch operator.BucketPatch
	must.OK(t, patch.Put(shaper.SettingRate, "10/s")) // far enough apart for a busy machine: the calls arrive in the order of their slots
	must.Get(p.op.As("test").Bucket("slow").Set(t.Context(), patch))(t)
	if a, b := <-first, <-second; a != 200 || b != 200 {
		t.Errorf("answered with %d and %d", a, b)
	}
	p.untilJobs("slow", 0)
	var order []string
	for _, call := range p.called() {
		order = append(order, strings.TrimPrefix(call.URL.Path, "/base"))
	}
	if len(order) != 7 || order[0] != "/x" || order[1] != "/x" {
		t.Errorf("the API was called for %v", order)
	}
}
