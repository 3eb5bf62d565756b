package cli_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
	"github.com/tundish-io/tundish/shaper/producer"
)

// One command has the story of one customer: its jobs of all states, and none of others. Another one redrives its dead letters, and leaves those of
// others.
func TestStoryOfAFlow(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := bucket(t, "tenants")
	flow := shaper.DefaultFlowSettings()
	flow.Key, flow.Quotas = shaper.FlowKeyJob, []admission.Rate{{Count: 10, Per: time.Hour, Unit: admission.UnitRequests}}
	b.Flow, b.Capacity, b.Results.Retention, b.Results.MaxBody, b.PermitTTL = &flow, 100, time.Hour, 0, shaper.MaxPermitTTL
	client := must.Get(producer.New(producer.Config{Redis: s.redis, Buckets: []shaper.Bucket{b}, Timeout: patience}))(t)
	enqueue := func(id, flow string, delay time.Duration) {
		t.Helper()
		if receipts, err := client.Enqueue(t.Context(), shaper.Job{ID: id, Bucket: "tenants", Flow: flow, Payload: []byte("1"), Delay: delay}); err != nil || receipts[0].Refusal != nil {
			t.Fatal(receipts, err)
		}
	}
	for _, name := range []string{"acme", "other"} {
		enqueue("dead-"+name, name, 0)
		enqueue("done-"+name, name, 0)
		enqueue("later-"+name, name, time.Hour)
	}
	worker := shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
		if strings.HasPrefix(a.ID, "dead-") {
			return shaper.Dead("http_404", "no such order")
		}
		return shaper.Done(200)
	})
	d := must.Get(dispatcher.New(dispatcher.Config{Redis: s.redis, Buckets: []shaper.Bucket{b}, Timeout: patience, Workers: map[string]shaper.Worker{"tenants": worker}}))(t)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = d.Run(ctx) })
	eventually(t, "two are dead and two are done", func() bool {
		out := s.run(t, "dispatcher job list tenants --state any --json").out
		return strings.Count(out, `"state": "dead"`) == 2 && strings.Count(out, `"state": "done"`) == 2
	})
	stop()
	running.Wait()

	story := s.run(t, "dispatcher job list tenants --state any --flow acme")
	story.want(t, 0, "dead-acme", "done-acme", "later-acme", "http_404")
	if strings.Contains(story.out, "other") {
		t.Errorf("it has jobs of another flow:\n%s", story.out)
	}
	s.run(t, "dispatcher flow list tenants").want(t, 0, "LEFT", " of 10/h")
	s.run(t, "dispatcher flow show tenants acme").want(t, 0, "quota      10/h: ", " used, ", " left")
	s.run(t, "dispatcher dead redrive tenants --flow acme --all").want(t, 0, "redriven: 1 job")
	left := s.run(t, "dispatcher dead list tenants")
	left.want(t, 0, "dead-other")
	if strings.Contains(left.out, "dead-acme") {
		t.Errorf("the flow still has a dead letter:\n%s", left.out)
	}
}
