package shaper

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/redistest"
)

// flowing is a bucket whose flows are named by key.
func flowing(name, key string) Bucket {
	b := testBucket(name, 1)
	flow := DefaultFlowSettings()
	flow.Key = key
	b.Flow = &flow
	return b
}

func TestNameOfAFlow(t *testing.T) {
	t.Parallel()
	who := admission.Identity{Caller: "key:billing", Headers: map[string]string{"X-Tenant": "acme corp", "X-Long": strings.Repeat("a", 257), "X-Odd": "\xff"}}
	for i, test := range []struct {
		key, defaultURL string
		job             Job
		want, field     string
	}{
		{key: FlowKeyJob, job: Job{Flow: "a b"}, want: "a b"},
		{key: FlowKeyJob, field: "flow"},
		{key: FlowKeyHost, job: Job{URL: "https://API.Example.com/x"}, want: "api.example.com"},
		{key: FlowKeyHost, job: Job{URL: "https://example.com:443/x", Flow: "not asked"}, want: "example.com"},
		{key: FlowKeyHost, job: Job{URL: "HTTP://example.com:80"}, want: "example.com"},
		{key: FlowKeyHost, job: Job{URL: "http://example.com:443/x"}, want: "example.com:443"},
		{key: FlowKeyHost, job: Job{URL: "http://[::1]:8080/x"}, want: "[::1]:8080"},
		{key: FlowKeyHost, defaultURL: "https://example.com/hook", want: "example.com"},
		{key: FlowKeyHost, defaultURL: "https://example.com/hook", job: Job{URL: "http://other/"}, want: "other"},
		{key: FlowKeyHost, field: "url"},
		{key: FlowKeyHost, job: Job{URL: "%"}, field: "url"},
		{key: FlowKeyHost, job: Job{URL: "http://" + strings.Repeat("a", 257)}, field: "url"},
		{key: FlowKeyHost, job: Job{URL: "http://127.1/"}, field: "url"},
		{key: FlowKeyHost, job: Job{URL: "http://EXAMPLE.com.:017410/"}, want: "example.com:17410"},
		{key: FlowKeyCaller, job: Job{Identity: who}, want: "key:billing"},
		{key: FlowKeyCaller, field: "flow"},
		{key: "header:x-tenant", job: Job{Identity: who, Headers: map[string]string{"X-Tenant": "of the delivery"}}, want: "acme corp"},
		{key: "header:X-Tenant", field: "flow"},
		{key: "header:X-Long", job: Job{Identity: who}, field: "flow"},
		{key: "header:X-Odd", job: Job{Identity: who}, field: "flow"},
	} {
		got, err := (&FlowSettings{Key: test.key, DefaultURL: test.defaultURL}).NameOf(&test.job)
		var fault *FieldError
		if errors.As(err, &fault) != (test.field != "") || fault != nil && fault.Field != test.field || got != test.want {
			t.Errorf("test %d: %q, %v", i, got, err)
		}
	}
	var none *FlowSettings
	if got, err := none.NameOf(&Job{Flow: "said"}); got != "said" || err != nil {
		t.Errorf("without flows: %q, %v", got, err)
	}
}

// The name is in the receipt and with the job, limits count by it, and each flow has its own bound.
func TestEnqueueIntoFlows(t *testing.T) {
	t.Parallel()
	b := flowing("flows", FlowKeyHost)
	b.Flow.Capacity, b.Flow.MaxFlows, b.Flow.DefaultURL = 2, 2, "https://default.example/"
	b.Limits = []admission.Limit{{Name: "l", Per: []string{admission.PerFlow}, Limit: rate("3/744h")}}
	server := redistest.Start(t)
	redis := connect(t, server.Addr())
	c, err := newActors(ClientConfig{Redis: redis, Buckets: []Bucket{b}})
	if err != nil {
		t.Fatal(err)
	}
	to := func(host string) Job {
		return Job{Bucket: "flows", URL: "https://" + host + "/x", Payload: []byte("x")}
	}
	send := func(jobs ...Job) []Receipt {
		t.Helper()
		receipts, err := c.Enqueue(t.Context(), jobs...)
		if err != nil {
			t.Fatal(err)
		}
		return receipts
	}
	var got []string
	for _, r := range send(to("a"), to("A"), to("a"), Job{Bucket: "flows", Payload: []byte("x")}, to("b")) {
		text := r.Flow
		if r.Refusal != nil {
			text += " " + string(r.Refusal.Reason) + ": " + r.Refusal.Detail
			if r.Refusal.RetryAfter <= 0 || r.Refusal.RetryAfter > 3*time.Second {
				t.Errorf("retry after %s: %s", r.Refusal.RetryAfter, text)
			}
		} else if r.ETA.IsZero() || r.State != StateQueued {
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
	if err := redis.HSet(t.Context(), bucketKeys("flows").conf(), "flow_capacity", 9).Err(); err != nil {
		t.Fatal(err)
	}
	if r := send(to("a"))[0]; r.Refusal != nil || r.Position != 2 || r.Decisions[0].Remaining != 0 {
		t.Errorf("with room again: %+v", r)
	}
	for _, again := range send(to("a"), to("a")) {
		if again.Refusal == nil || again.Refusal.Reason != ReasonLimit || again.Flow != "a" {
			t.Errorf("the limit by flow: %+v", again)
		}
	}
	job := Job{Bucket: "flows", ID: "named", Payload: []byte("x"), Priority: PriorityHigh, ExpiresIn: time.Minute}
	if r := send(job)[0]; r.Refusal != nil || r.Position != 0 {
		t.Errorf("a more important job: %+v", r)
	}
	ids, err := redis.LRange(t.Context(), bucketKeys("flows").list(PriorityHigh, "default.example"), 0, -1).Result()
	if err != nil || !slices.Equal(ids, []string{"named"}) {
		t.Errorf("the list holds %v, %v", ids, err)
	}
	body, err := redis.HGet(t.Context(), bucketKeys("flows").body(), "named").Result()
	if err != nil {
		t.Fatal(err)
	}
	if stored, err := open(body); err != nil || stored.Flow != "default.example" || stored.ExpiresIn != time.Minute.Microseconds() {
		t.Errorf("kept as %q, %v", body, err)
	}
	job.URL = "https://a/x"
	if r := send(job)[0]; r.Refusal == nil || r.Refusal.Reason != ReasonIDReused {
		t.Errorf("the same id in another flow: %+v", r)
	}
	var fault *FieldError
	if _, err := c.Enqueue(t.Context(), Job{Bucket: "flows", URL: "/x", Payload: []byte("x")}); !errors.As(err, &fault) || fault.Field != "url" {
		t.Errorf("a job without a host: %v", err)
	}
}

// A batch of many flows is one round trip; its jobs are in the order in which they came.
func TestBatchOfFlows(t *testing.T) {
	t.Parallel()
	c := clients(t, 1, flowing("many", FlowKeyJob))[0]
	jobs := make([]Job, 600)
	for i := range jobs {
		jobs[i] = Job{Bucket: "many", Flow: fmt.Sprintf("flow %d", i%200), Payload: []byte("x")}
	}
	receipts, err := c.Enqueue(t.Context(), jobs...)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range receipts {
		if r.Refusal != nil || r.Flow != jobs[i].Flow || r.Position != int64(i/200) {
			t.Fatalf("job %d: %+v", i, r)
		}
	}
}

// The headers that name flows are those that a caller has to put into the identity.
func TestHeadersOfFlows(t *testing.T) {
	t.Parallel()
	b := flowing("headers", "header:x-tenant")
	b.Limits = []admission.Limit{{Name: "l", Per: []string{"header:x-other"}, Limit: rate("3/744h")}}
	c := clients(t, 1, b)[0]
	if got := c.LimitHeaders("headers"); !slices.Equal(got, []string{"X-Other", "X-Tenant"}) {
		t.Errorf("got %q", got)
	}
}

// Who was told nothing of a bucket's flows enqueues nothing, and says why.
func TestFlowsMustBeTheSameForAll(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	newer, older := flowing("b", FlowKeyJob), testBucket("b", 1)
	newer.Revision = 2
	var both []*actors
	for _, b := range []Bucket{newer, older} {
		c, err := newActors(ClientConfig{Redis: connect(t, server.Addr()), Buckets: []Bucket{b}})
		if err != nil {
			t.Fatal(err)
		}
		both = append(both, c)
	}
	job := Job{Bucket: "b", Flow: "x", Payload: []byte("x")}
	if r, err := both[0].Enqueue(t.Context(), job); err != nil || r[0].Refusal != nil {
		t.Fatalf("%+v, %v", r, err)
	}
	if _, err := both[1].Enqueue(t.Context(), job); err == nil || !strings.Contains(err.Error(), "[buckets.flow]") {
		t.Errorf("with another configuration: %v", err)
	}
	older.Revision = 3
	if err := both[0].Reconfigure([]Bucket{older}); err == nil || !strings.Contains(err.Error(), "flow") {
		t.Errorf("a reload that takes the flows away: %v", err)
	}
}
