package httpapi_test

import (
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/producer"
)

// Flows are named by what the request has, and who has nothing to name them by is told.
func TestFlows(t *testing.T) {
	t.Parallel()
	var all []shaper.Bucket
	for name, key := range map[string]string{"byjob": "job", "byhost": "host", "bycaller": "caller", "byheader": "header:X-Tenant"} {
		b := buckets(t)[0]
		flow := shaper.DefaultFlowSettings()
		flow.Key, flow.Capacity, flow.MaxFlows = key, 2, 2
		b.Name, b.Flow = name, &flow
		all = append(all, b)
	}
	client := must.Get(producer.New(producer.Config{Redis: connect(t, redistest.Start(t).URL()), Buckets: all, Timeout: patience}))(t)
	api := serve(t, httpapi.NewProducer(httpapi.ProducerConfig{Jobs: client, CheckJob: checkJob, Logger: logTo(t.Output())}))
	jobs := func(bucket string) string { return "/v1/buckets/" + bucket + "/jobs" }

	api.do("POST", jobs("byhost"), job(`"flow":"not asked"`)).want(202, "").has("flow", "example.com")
	api.do("POST", jobs("bycaller"), job("")).want(202, "").has("flow", "addr:127.0.0.1")
	api.do("POST", jobs("byheader"), job(""), "X-Tenant", "acme").want(202, "").has("flow", "acme")
	api.do("POST", jobs("byjob"), job(`"flow":"acme","expires_in":"10m"`)).want(202, "").has("flow", "acme")
	api.do("POST", jobs("byheader"), job("")).want(400, "invalid").has("detail", "flow: is named by the header X-Tenant, which the request has not: send it")
	api.do("POST", jobs("byjob"), job("")).want(400, "invalid").has("detail", "flow: is missing: the bucket has flows, and the job has to name its own")

	api.do("POST", jobs("byjob"), job(`"flow":"acme"`)).want(202, "").has("position", float64(1))
	a := api.do("POST", jobs("byjob"), job(`"flow":"acme"`)).want(429, "flow-full")
	if seconds, err := time.ParseDuration(a.header.Get("Retry-After") + "s"); err != nil || seconds < time.Minute {
		t.Errorf("Retry-After %q of a bucket with 1/h: %v", a.header.Get("Retry-After"), err)
	}
	a.has("type", "https://tundish.io/problems/flow-full")
	a = api.do("POST", jobs("byjob")+"/batch", "["+job(`"flow":"b"`)+","+job(`"flow":"c"`)+","+job("")+"]").want(200, "")
	results := a.json["results"].([]any)
	for i, want := range []any{nil, "too-many-flows", "invalid"} {
		must.Equal(t, results[i].(map[string]any)["code"], want, "job %d of the batch", i)
	}
}
