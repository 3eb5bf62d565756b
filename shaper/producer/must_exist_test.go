package producer_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
)

// existing is a bucket whose flows have to exist.
func existing(name, key string) shaper.Bucket {
	b := rig.Flowing(name, key)
	b.Flow.MustExist = true
	return b
}

// Whatever names the flow of a job, one that no operator has made is refused, with what to do next. The settings are those that an operator
// gives, and they go as they came.
func TestFlowsHaveToExist(t *testing.T) {
	t.Parallel()
	grouped := rig.Grouped("groups", 1000)
	grouped.Flow.MustExist = true
	lacking := existing("lacking", shaper.FlowKeyJob)
	lacking.Flow.NeedsURL = true
	all := []shaper.Bucket{existing("host", shaper.FlowKeyHost), existing("caller", shaper.FlowKeyCaller), grouped, lacking}
	c := must.Get(rig.NewActors(producer.Config{Redis: rig.Connect(t, redistest.Start(t).Addr()), Buckets: all}))(t)
	must.OK(t, c.JoinPools(t.Context()))
	op := c.Op.As("anna")
	weight := func() (p operator.FlowPatch) {
		_ = p.Put(shaper.FlowWeight, "1")
		return p
	}
	url := weight()
	_ = url.Put(shaper.FlowURL, "https://own.example/")
	job := shaper.Job{Payload: []byte("x"), URL: "https://Known.example/x", Flow: "f", Group: "g", Identity: admission.Identity{Caller: "known"}}
	for _, kind := range []struct {
		bucket string
		flow   operator.Flow
		patch  operator.FlowPatch
		url    string
		want   string
	}{
		{"host", op.Bucket("host").Flow("known.example"), weight(), job.URL, `bucket "host" has no flow "known.example", and takes`},
		{"caller", op.Bucket("caller").Flow("known"), weight(), "", `bucket "caller" has no flow "known", and takes`},
		{"groups", op.Bucket("groups").Group("g").Flow("f"), weight(), "", `bucket "groups" has no flow "f" in group "g", and takes`},
		{"lacking", op.Bucket("lacking").Flow("f"), url, "", `bucket "lacking" has no flow "f", and takes`},
	} {
		id := ""
		send := func(want string) {
			t.Helper()
			one := job
			one.Bucket, one.URL = kind.bucket, kind.url
			receipts := must.Get(c.Enqueue(t.Context(), one, one))(t)
			for _, r := range receipts {
				if want == "" {
					id = r.ID
				}
				switch {
				case want == "" && r.Refusal != nil:
					t.Errorf("%s: %s", kind.bucket, r.Refusal.Detail)
				case want != "" && (r.Refusal == nil || r.Refusal.Reason != shaper.ReasonUnknownFlow || r.Refusal.RetryAfter != 0 || !strings.Contains(r.Refusal.Detail, want)):
					t.Errorf("%s: %+v, want %q", kind.bucket, r.Refusal, want)
				}
			}
		}
		send(kind.want)
		if kind.bucket == "lacking" {
			must.Get(kind.flow.Set(t.Context(), weight()))(t)
			send(`flow "f" of bucket "lacking" has no URL, nor has the bucket`)
		}
		must.Get(kind.flow.Set(t.Context(), kind.patch))(t)
		send("")
		if had, err := kind.flow.Reset(t.Context()); err != nil || !had {
			t.Fatal(had, err)
		}
		send(kind.want)
		info, err := kind.flow.Info(t.Context())
		if err != nil || !info.Missing || info.Waiting != 2 {
			t.Errorf("%s: %+v, %v", kind.bucket, info, err)
		}
		one, err := c.Job(t.Context(), kind.bucket, id)
		if err != nil || fmt.Sprint(one.BlockedBy()) != "[flow-missing ahead]" || one.OfFlow.Pause != nil ||
			!strings.Contains(one.Why(), "has no settings of its own, which flow.must_exist asks for") || !one.Earliest().IsZero() {
			t.Errorf("%s: %v %s, %v", kind.bucket, one.BlockedBy(), one.Why(), err)
		}
		if purged, err := kind.flow.Purge(t.Context(), operator.PurgeOptions{}); err != nil || purged.Jobs != 2 {
			t.Errorf("%s: purged %+v, %v", kind.bucket, purged, err)
		}
	}
}

// Jobs of flows that exist get in beside others, a caller makes no flow by asking for it, and a job that is in is a duplicate whatever became
// of its flow.
func TestAMistypedFlowAmongOthers(t *testing.T) {
	t.Parallel()
	b := existing("flows", shaper.FlowKeyJob)
	b.Flow.MaxFlows = 10
	c := must.Get(rig.NewActors(producer.Config{Redis: rig.Connect(t, redistest.Start(t).Addr()), Buckets: []shaper.Bucket{b}}))(t)
	var patch operator.FlowPatch
	must.OK(t, patch.Put(shaper.FlowRate, "100/s"))
	must.OK(t, c.JoinPools(t.Context()))
	acme := c.Op.As("anna").Bucket("flows").Flow("acme")
	must.Get(acme.Set(t.Context(), patch))(t)
	in := func(flow string, n int) (in, refused int) {
		jobs := make([]shaper.Job, n)
		for i := range jobs {
			jobs[i] = shaper.Job{Bucket: "flows", ID: fmt.Sprint("job-", i), Flow: flow, Caller: "key", Payload: []byte("x")}
			if i%2 == 1 {
				jobs[i].Flow = fmt.Sprint("mistyped-", i)
			}
		}
		receipts := must.Get(c.Enqueue(t.Context(), jobs...))(t)
		for _, r := range receipts {
			if r.Refusal == nil {
				in++
			} else if refused++; r.Refusal.Reason != shaper.ReasonUnknownFlow {
				t.Errorf("%+v", r.Refusal)
			}
		}
		return in, refused
	}
	if in, refused := in("acme", 300); in != 150 || refused != 150 {
		t.Errorf("%d in, %d refused", in, refused)
	}
	flows, _, err := c.Op.Bucket("flows").Flows(t.Context(), "", 1000)
	if err != nil || len(flows) != 1 || flows[0].Flow != "acme" || flows[0].Missing {
		t.Errorf("flows %+v, %v", flows, err)
	}
	must.Get(acme.Reset(t.Context()))(t)
	if in, refused := in("acme", 300); in != 150 || refused != 150 {
		t.Errorf("again: %d in, %d refused", in, refused)
	}
}
