package dispatcher

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
)

func TestWhatDisablesAFlow(t *testing.T) {
	t.Parallel()
	gone, own := shaper.Outcome{Result: shaper.ResultDead, Gone: true}, &shaper.OwnDelivery{URL: "https://a.example/hook"}
	for name, c := range map[string]struct {
		onGone  shaper.OnGone
		job     shaper.Attempt
		outcome shaper.Outcome
		want    bool
	}{
		"its own url":                {"", shaper.Attempt{Own: own}, gone, true},
		"the same by name":           {shaper.GoneDisablesOwnURL, shaper.Attempt{Own: own}, gone, true},
		"the job's url":              {"", shaper.Attempt{Own: own, URL: "https://b.example"}, gone, false},
		"the bucket's url":           {"", shaper.Attempt{}, gone, false},
		"a flow with headers only":   {"", shaper.Attempt{Own: &shaper.OwnDelivery{Headers: map[string]string{"A": "b"}}}, gone, false},
		"the job's url, told to":     {shaper.GoneDisables, shaper.Attempt{URL: "https://b.example"}, gone, true},
		"its own url, not to":        {shaper.GoneIsIgnored, shaper.Attempt{Own: own}, gone, false},
		"dead for any other reason":  {shaper.GoneDisables, shaper.Attempt{Own: own}, shaper.Dead("x", "y"), false},
		"delivered to its own url":   {shaper.GoneDisables, shaper.Attempt{Own: own}, shaper.Done(200), false},
		"tried again at its own url": {shaper.GoneDisables, shaper.Attempt{Own: own}, shaper.Retry("x", "y"), false},
	} {
		b := rig.Flowing("b", shaper.FlowKeyJob)
		b.Breaker.OnGone = c.onGone
		d := &settler{bucketConn: &bucketConn{Bucket: &store.Bucket{Name: "b", Keys: store.BucketKeys("b").As(1)}}}
		d.Settings.Store(&b)
		must.Equal(t, d.isGone(&leased{Attempt: c.job}, &c.outcome), c.want, "%s", name)
		d.Keys = d.Keys.As(0)
		if d.isGone(&leased{Attempt: c.job}, &c.outcome) {
			t.Errorf("%s: a bucket without flows is disabled", name)
		}
	}
}

// One receiver is gone: the jobs of its flow become dead letters, new ones are refused, and the other flow goes on. The hook hears of it
// once. Enabled again, the flow gets its jobs back.
func TestFlowWhoseReceiverIsGone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client()
	b, hooks := rig.Flowing("b", shaper.FlowKeyJob), rig.Bucket("hooks", 100)
	b.Rate.Count, b.Breaker.OnGone = 200, shaper.GoneDisables
	b.Events, hooks.Events = shaper.Events(), shaper.Events()
	buckets := []shaper.Bucket{b, hooks}
	c := must.Get(producer.New(producer.Config{Timeout: rig.Patience, Redis: client, Buckets: buckets}))(t)
	t.Cleanup(c.Close)
	op := must.Get(operator.New(operator.Config{Timeout: rig.Patience, Redis: client, Buckets: buckets}))(t)
	delivered, heard, isGone := make(chan string, 1000), make(chan *shaper.Attempt, 100), make(chan struct{})
	worker := shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
		select {
		case <-isGone:
		default:
			if a.Flow == "a" {
				return shaper.Outcome{Result: shaper.ResultDead, Reason: "gone", Status: 410, Gone: true, Signal: shaper.SignalAccepted}
			}
		}
		delivered <- a.ID
		return shaper.Done(200)
	})
	hear := shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
		heard <- a
		return shaper.Done(200)
	})
	d := must.Get(New(Config{
		Redis: client, Buckets: buckets, Workers: map[string]shaper.Worker{"b": worker, "hooks": hear}, Enqueue: c.Enqueue,
		Hooks: []Hook{{Events: []shaper.Event{shaper.EventFlowDisabled, shaper.EventFlowRecovered}, Bucket: "hooks", URL: "https://ops.example"}},
	}))(t)
	enqueue := func(flow string, ids ...string) shaper.Reason {
		t.Helper()
		for _, id := range ids {
			receipts := must.Get(c.Enqueue(t.Context(), shaper.Job{Bucket: "b", Flow: flow, ID: id, Payload: []byte("1")}))(t)
			if refusal := receipts[0].Refusal; refusal != nil {
				return refusal.Reason
			}
		}
		return ""
	}
	var of []string
	for i := range 300 {
		of = append(of, fmt.Sprint("a", i))
	}
	if reason := enqueue("a", of...); reason != "" {
		t.Fatal(reason)
	}
	enqueue("b", "b1")
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
	must.Equal(t, <-delivered, "b1", "was delivered")
	look := op.Bucket("b")
	tick, late := time.NewTicker(20*time.Millisecond), time.After(time.Minute)
	defer tick.Stop()
	for isEmpty := false; !isEmpty; {
		infos, err := op.BucketInfos(t.Context(), "b")
		isEmpty = err == nil && infos[0].Dead == 300 && infos[0].Unfinished == 0 && infos[0].FlowsDisabled == 1
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("the bucket has %+v, %v", infos, err)
		}
	}
	info, err := look.Flow("a").Info(t.Context())
	if err != nil || info.Own.Disabled == nil || info.Own.Disabled.Reason != "gone" || info.Own.Pause != nil {
		t.Fatalf("the flow is %+v, %v", info, err)
	}
	must.Equal(t, enqueue("a", "new"), shaper.ReasonFlowDisabled, "a new job")
	dead := must.Get(look.Dead().List(t.Context(), 0, 1000))(t)
	causes := map[string]int{}
	for _, one := range dead {
		causes[one.Last.Cause]++
	}
	if n := causes[shaper.CauseFlowDisabled]; n == 0 || n+causes[shaper.CausePermanent] != 300 {
		t.Errorf("the causes are %v", causes)
	}
	first := <-heard
	if want := `{"type":"flow.disabled","timestamp":"`; first.URL != "https://ops.example" || string(first.Payload[:len(want)]) != want {
		t.Errorf("the hook heard %s at %s", first.Payload, first.URL)
	}
	close(isGone)
	flow := op.As("anna").Bucket("b").Flow("a")
	if was, err := flow.Enable(t.Context()); err != nil || !was {
		t.Fatal(was, err)
	}
	redriven, err := flow.RedriveDisabled(t.Context())
	if err != nil || redriven.Moved != causes[shaper.CauseFlowDisabled] {
		t.Errorf("redriven: %+v, %v", redriven, err)
	}
	for range redriven.Moved {
		<-delivered
	}
	<-heard
	if was, err := flow.Enable(t.Context()); err != nil || was {
		t.Error(was, err)
	}
}
