package httpapi_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/internal/stored"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
)

// Jobs name where their outcome is told, in buckets that make callbacks; what waits of these is shown.
func TestCallbackFields(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	two := buckets(t)[:2]
	two[0].Name, two[0].Callbacks = "calls", shaper.Callbacks{Bucket: "told", FailureURL: "https://b.example/hook", Origins: []string{"https://A.example:443"}}
	two[1].Name, two[1].Limits = "told", nil
	client := must.Get(producer.New(producer.Config{Redis: connect(t, store.URL()), Buckets: two, Timeout: patience}))(t)
	t.Cleanup(client.Close)
	api := serve(t, httpapi.NewProducer(httpapi.ProducerConfig{Jobs: client}))
	const jobs = "/v1/buckets/calls/jobs"
	const good = `"payload":1,"callback_url":"https://a.example/x","failure_url":"https://b.example/"`
	api.do("POST", jobs, `{"id":"a",`+good+`}`).want(202, "")
	api.do("POST", jobs, `{"id":"a",`+good+`}`).want(202, "").has("duplicate", true)
	api.do("POST", jobs, `{"id":"a","payload":1,"callback_url":"https://a.example/y","failure_url":"https://b.example/"}`).want(422, "id-reused")
	api.do("POST", jobs, `{"payload":1,"callback_url":null,"failure_url":""}`).want(202, "")
	for name, fields := range map[string]string{
		"callback_url is a number":  `"callback_url":7`,
		"callback_url is relative":  `"callback_url":"/x"`,
		"callback_url is too long":  `"callback_url":"https://a.example/` + strings.Repeat("x", 2100) + `"`,
		"callback_url is elsewhere": `"callback_url":"https://evil.example/x"`,
		"failure_url is elsewhere":  `"failure_url":"http://a.example/"`,
		"failure_url has no host":   `"failure_url":"https:///x"`,
		"failure_url is given once": `"failure_url":"https://a.example/","failure_url":"https://b.example/"`,
	} {
		a := api.do("POST", jobs, `{"payload":1,`+fields+`}`).want(400, "invalid")
		if field, _, _ := strings.Cut(name, " "); !strings.Contains(a.text, `"`+field+`"`) {
			t.Errorf("%s: %s", name, a.text)
		}
	}
	if a := api.do("POST", "/v1/buckets/told/jobs", `{`+good+`}`).want(400, "invalid"); !strings.Contains(a.text, "[buckets.callbacks]") {
		t.Errorf("in a bucket without callbacks: %s", a.text)
	}
	batch := api.do("POST", jobs+"/batch", `[{`+good+`},{"payload":1,"callback_url":"x"}]`).want(200, "")
	if batch.json["admitted"] != 1. || batch.json["refused"] != 1. {
		t.Errorf("a batch: %s", batch.text)
	}

	registry := prometheus.NewPedanticRegistry()
	op := newOperator(t, connect(t, store.URL()), nil, two)
	registry.MustRegister(operator.NewCollector(t.Context(), op))
	ops := serve(t, httpapi.NewOps(httpapi.OpsConfig{Buckets: op, Metrics: registry}))
	if a := ops.do("GET", "/v1/buckets/calls", "").want(200, ""); a.json["callbacks"] != nil {
		t.Errorf("without callbacks: %s", a.text)
	}
	prefix := stored.Key("calls", "")
	for _, seconds := range []int{5, 60} {
		at := time.Now().Add(-time.Duration(seconds) * time.Second).UnixMicro()
		name := fmt.Sprint(at, " 1 a")
		store.Client().HSet(t.Context(), prefix+"callback_texts", name, "text")
		store.Client().ZAdd(t.Context(), prefix+"callbacks", redis.Z{Member: name, Score: float64(at + 90_000_000)})
	}
	waiting, _ := ops.do("GET", "/v1/buckets/calls", "").want(200, "").json["callbacks"].(map[string]any)
	if age, _ := waiting["oldest_age_seconds"].(float64); waiting["waiting"] != 2. || age < 60 || age > 120 {
		t.Errorf("with two: %v", waiting)
	}
	if a := ops.do("GET", "/metrics", ""); !strings.Contains(a.text, `tundish_bucket_callbacks{bucket="calls"} 2`) {
		t.Errorf("metrics: %s", a.text)
	}
}
