package httpapi_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

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
	receipts, err := p.client.Enqueue(t.Context(), jobs...)
	if err != nil {
		t.Fatal(err)
	}
	const body = "tundish:{slow}:b:slow:body"
	came := regexp.MustCompile(`^(\S+) (\d+) `)
	for _, receipt := range receipts { // an hour ago
		text := p.redis.HGet(t.Context(), body, receipt.ID).Val()
		old := fmt.Sprint(time.Now().Add(-time.Hour).UnixMicro())
		if err := p.redis.HSet(t.Context(), body, receipt.ID, came.ReplaceAllString(text, "${1} "+old+" ")).Err(); err != nil {
			t.Fatal(err)
		}
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
	if err := patch.Put(shaper.SettingRate, "100/s"); err != nil {
		t.Fatal(err)
	}
	if _, err := p.op.As("test").Bucket("slow").Set(t.Context(), patch); err != nil {
		t.Fatal(err)
	}
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
