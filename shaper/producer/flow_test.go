package producer_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/producer"
)

// The name is in the receipt and with the job, limits count by it, and each flow has its own bound.
func TestEnqueueIntoFlows(t *testing.T) {
	t.Parallel()
	b := rig.Flowing("flows", shaper.FlowKeyHost)
	b.Flow.Capacity, b.Flow.MaxFlows, b.Flow.DefaultURL = 2, 2, "https://default.example/"
	b.Limits = []admission.Limit{{Name: "l", Per: []string{admission.PerFlow}, Limit: rig.Rate("3/744h")}}
	server := redistest.Start(t)
	redis := rig.Connect(t, server.Addr())
	c := must.Get(rig.NewActors(producer.Config{Redis: redis, Buckets: []shaper.Bucket{b}}))(t)
	to := func(host string) shaper.Job {
		return shaper.Job{Bucket: "flows", URL: "https://" + host + "/x", Payload: []byte("x")}
	}
	send := func(jobs ...shaper.Job) []shaper.Receipt {
		t.Helper()
		receipts := must.Get(c.Enqueue(t.Context(), jobs...))(t)
		return receipts
	}
	var got []string
	for _, r := range send(to("a"), to("A"), to("a"), shaper.Job{Bucket: "flows", Payload: []byte("x")}, to("b")) {
		text := r.Flow
		if r.Refusal != nil {
			text += " " + string(r.Refusal.Reason) + ": " + r.Refusal.Detail
			if r.Refusal.RetryAfter <= 0 || r.Refusal.RetryAfter > 3*time.Second {
				t.Errorf("retry after %s: %s", r.Refusal.RetryAfter, text)
			}
		} else if r.ETA.IsZero() || r.State != shaper.StateQueued {
			t.Errorf("%+v", r)
		}
		got = append(got, text)
	}
	if len(got) != 5 || got[0] != "a" || got[1] != "a" || !strings.HasPrefix(got[2], `a flow-full: flow "a" of bucket "flows" is full (2/2): retry in `) ||
		!strings.HasSuffix(got[2], "s or raise flow.capacity") || got[3] != "default.example" ||
		got[4] != `b too-many-flows: bucket "flows" has 2 of at most 2 flows already, and "b" would be another one: retry in 1s or raise flow.max_flows` {
		t.Fatalf("%q", got)
	}
	// A refusal by the bound spends nothing and is not remembered: there is room again.
	must.OK(t, redis.HSet(t.Context(), store.BucketKeys("flows").Conf(), "flow_capacity", 9).Err())
	if r := send(to("a"))[0]; r.Refusal != nil || r.Position != 2 || r.Decisions[0].Remaining != 0 {
		t.Errorf("with room again: %+v", r)
	}
	for _, again := range send(to("a"), to("a")) {
		if again.Refusal == nil || again.Refusal.Reason != shaper.ReasonLimit || again.Flow != "a" {
			t.Errorf("the limit by flow: %+v", again)
		}
	}
	job := shaper.Job{Bucket: "flows", ID: "named", Payload: []byte("x"), Priority: shaper.PriorityHigh, ExpiresIn: time.Minute}
	if r := send(job)[0]; r.Refusal != nil || r.Position != 0 {
		t.Errorf("a more important job: %+v", r)
	}
	ids, err := redis.LRange(t.Context(), store.BucketKeys("flows").List(shaper.PriorityHigh, "default.example"), 0, -1).Result()
	if err != nil || !slices.Equal(ids, []string{"named"}) {
		t.Errorf("the list holds %v, %v", ids, err)
	}
	body := must.Get(redis.HGet(t.Context(), store.BucketKeys("flows").Body(), "named").Result())(t)
	if stored, err := codec.Open(body); err != nil || stored.Flow != "default.example" || stored.ExpiresIn != time.Minute.Microseconds() {
		t.Errorf("kept as %q, %v", body, err)
	}
	job.URL = "https://a/x"
	if r := send(job)[0]; r.Refusal == nil || r.Refusal.Reason != shaper.ReasonIDReused {
		t.Errorf("the same id in another flow: %+v", r)
	}
	var fault *shaper.FieldError
	if _, err := c.Enqueue(t.Context(), shaper.Job{Bucket: "flows", URL: "https:///x", Payload: []byte("x")}); !errors.As(err, &fault) || fault.Field != "url" {
		t.Errorf("a job without a host: %v", err)
	}
}

// A batch of many flows is one round trip; its jobs are in the order in which they came.
func TestBatchOfFlows(t *testing.T) {
	t.Parallel()
	c := rig.Clients(t, 1, rig.Flowing("many", shaper.FlowKeyJob))[0]
	jobs := make([]shaper.Job, 600)
	for i := range jobs {
		jobs[i] = shaper.Job{Bucket: "many", Flow: fmt.Sprintf("flow %d", i%200), Payload: []byte("x")}
	}
	receipts := must.Get(c.Enqueue(t.Context(), jobs...))(t)
	for i, r := range receipts {
		if r.Refusal != nil || r.Flow != jobs[i].Flow || r.Position != int64(i/200) {
			t.Fatalf("job %d: %+v", i, r)
		}
	}
}

// The headers that name flows are those that a caller has to put into the identity.
func TestHeadersOfFlows(t *testing.T) {
	t.Parallel()
	b := rig.Flowing("headers", "header:x-tenant")
	b.Limits = []admission.Limit{{Name: "l", Per: []string{"header:x-other"}, Limit: rig.Rate("3/744h")}}
	c := rig.Clients(t, 1, b)[0]
	if got := c.LimitHeaders("headers"); !slices.Equal(got, []string{"X-Other", "X-Tenant"}) {
		t.Errorf("got %q", got)
	}
}

// The group is in the receipt and with the job, it has a bound of its own, and flows of two groups are apart.
func TestEnqueueIntoGroups(t *testing.T) {
	t.Parallel()
	b := rig.Grouped("b", 10)
	b.Group.Capacity, b.Group.Key = 2, "header:X-Tenant"
	b.Limits = []admission.Limit{{Name: "l", Per: []string{admission.PerFlow}, Limit: rig.Rate("2/744h")}}
	c := rig.Clients(t, 1, b)[0]
	must.Equal(t, fmt.Sprint(c.LimitHeaders("b")), "[X-Tenant]", "headers")
	of := func(group, flow string) shaper.Job {
		return shaper.Job{Bucket: "b", Flow: flow, Payload: []byte("x"), Identity: admission.Identity{Headers: map[string]string{"X-Tenant": group}}}
	}
	receipts := must.Get(c.Enqueue(t.Context(), of("a", "x"), of("b", "x"), of("a", "y"), of("a", "z"), of("b", "x"), of("c", "x")))(t)
	var got []string
	for _, r := range receipts {
		text := fmt.Sprintf("%s/%s@%d", r.Group, r.Flow, r.Position)
		if r.Refusal != nil {
			text = fmt.Sprintf("%s %s: %s", text, r.Refusal.Reason, r.Refusal.Detail)
			if r.Refusal.RetryAfter <= 0 || r.Refusal.RetryAfter > time.Second {
				t.Errorf("retry after %s", r.Refusal.RetryAfter)
			}
		}
		got = append(got, text)
	}
	want := `a/x@0, b/x@0, a/y@0, a/z@0 group-full: group "a" of bucket "b" is full (2/2): retry in 1s or raise group.capacity, b/x@1, c/x@0`
	must.Equal(t, strings.Join(got, ", "), want, "Join")
	again, err := c.Enqueue(t.Context(), of("c", "x"), of("c", "x"))
	if err != nil || again[0].Refusal != nil || again[1].Refusal == nil || again[1].Refusal.Reason != shaper.ReasonLimit {
		t.Errorf("a limit by flow counts those of each group: %+v, %v", again, err)
	}
	job, err := c.Job(t.Context(), "b", receipts[4].ID)
	if err != nil || job.Group != "b" || job.Flow != "x" || job.OfGroup == nil || job.OfFlow == nil || job.Position != 1 {
		t.Errorf("job %+v, %v", job, err)
	}
	must.Equal(t, must.Get(c.Cancel(t.Context(), "b", receipts[4].ID))(t), shaper.StateCancelled, "cancelled")
	if infos, err := c.Op.BucketInfos(t.Context(), "b"); err != nil || !infos[0].HasGroups || infos[0].Groups != 3 || infos[0].GroupsWait != 3 || infos[0].Flows != 4 {
		t.Errorf("bucket %+v, %v", infos, err)
	}
}

// A bucket that holds jobs keeps its groups, whatever a process has configured.
func TestGroupsMustBeTheSameForAll(t *testing.T) {
	t.Parallel()
	s := rig.NewGrouped(t)
	s.SubmitTo("a", "x", "j")
	other := rig.Flowing("b", shaper.FlowKeyJob)
	other.Revision = 1
	c, err := rig.NewActors(producer.Config{Redis: s.Redis, Buckets: []shaper.Bucket{other}})
	must.OK(t, err)
	_, err = c.Enqueue(t.Context(), shaper.Job{Bucket: "b", Flow: "x", Payload: []byte("x")})
	if err == nil || !strings.Contains(err.Error(), "group: is missing: the bucket has groups, and the job has to name its own") {
		t.Errorf("enqueued without a group: %v", err)
	}
	r, err := c.Enqueue(t.Context(), shaper.Job{Bucket: "b", Group: "a", Flow: "x", Payload: []byte("x")})
	if err != nil || r[0].Refusal != nil || r[0].Group != "a" {
		t.Errorf("enqueued with a group: %+v, %v", r, err)
	}
	err = c.JoinPools(t.Context())
	if err == nil || !strings.Contains(err.Error(), "holds 2 jobs that were queued with flows in groups, and is configured with flows: drain or purge it first") {
		t.Errorf("a dispatcher: %v", err)
	}
	if err := c.Op.As("anna").Bucket("b").Flow("x").Pause(t.Context(), ""); err == nil {
		t.Error("a flow was paused as one of no group")
	}
	// What Redis knows of a bucket that is not configured here.
	empty := must.Get(rig.NewActors(producer.Config{Redis: s.Redis}))(t)
	if info, err := empty.Op.As("anna").Bucket("b").Group("a").Info(t.Context()); err != nil || info.Waiting != 2 {
		t.Errorf("group %+v, %v", info, err)
	}
	if err := empty.Op.As("anna").Bucket("b").Group("a").Flow("x").Pause(t.Context(), ""); err != nil {
		t.Error(err)
	}
}

// A flow and a group have a bound of their own for jobs with a delay: of what is set, else the capacity. The refusal says how long.
func TestScheduledCapacityOfFlowsAndGroups(t *testing.T) {
	t.Parallel()
	b := rig.Flowing("later", shaper.FlowKeyJob)
	group := shaper.DefaultGroupSettings()
	b.Group, group.Key, group.ScheduledCapacity, b.Flow.Capacity = &group, shaper.FlowKeyJob, 3, 2
	c := rig.Clients(t, 1, b)[0]
	var refused []string
	for _, flow := range []string{"a", "a", "a", "b", "b"} {
		receipts := must.Get(c.Enqueue(t.Context(), shaper.Job{Bucket: "later", Group: "g", Flow: flow, Payload: []byte("x"), Delay: 8784 * time.Hour}))(t)
		if r := receipts[0].Refusal; r != nil {
			refused = append(refused, fmt.Sprintf("%s: %s", r.Reason, r.Detail))
			if r.RetryAfter < 8783*time.Hour || r.RetryAfter > 8784*time.Hour {
				t.Errorf("%s: retry after %s", flow, r.RetryAfter)
			}
		}
	}
	if len(refused) != 2 || !strings.HasPrefix(refused[0], `scheduled-full: flow "a" of bucket "later" holds 2 of at most 2 jobs for later already: retry in 8`) ||
		!strings.HasPrefix(refused[1], `scheduled-full: group "g" of bucket "later" holds 3 of at most 3 jobs for later already: retry in 8`) {
		t.Errorf("%q", refused)
	}
}
