package httpapi_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
)

func TestOps(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	registry := prometheus.NewPedanticRegistry()
	client, op := newClient(t, connect(t, store.URL()), registry), newOperator(t, connect(t, store.URL()), registry, buckets(t))
	registry.MustRegister(operator.NewCollector(t.Context(), op))
	api := serve(t, httpapi.NewOps(httpapi.OpsConfig{Buckets: op, Metrics: registry}))

	old := shaper.DefaultBucket()
	old.Name, old.Rate = "old", rateOf(t, "7/m")
	former := must.Get(producer.New(producer.Config{Redis: store.Client(), Buckets: []shaper.Bucket{old}, Timeout: patience}))(t)
	for _, enqueue := range []func() ([]shaper.Receipt, error){
		func() ([]shaper.Receipt, error) {
			return former.Enqueue(t.Context(), shaper.Job{Bucket: "old", Payload: []byte("1")})
		},
		func() ([]shaper.Receipt, error) {
			return client.Enqueue(t.Context(), shaper.Job{Bucket: "roomy", Payload: []byte("1")}, shaper.Job{Bucket: "roomy", Payload: []byte("2")})
		},
	} {
		must.Get(enqueue())(t)
	}

	a := api.do("GET", "/v1/buckets", "").want(200, "")
	list := a.json["buckets"].([]any)
	var names []string
	for _, b := range list {
		names = append(names, b.(map[string]any)["name"].(string))
	}
	must.Equal(t, strings.Join(names, " "), "roomy limited small fixed old", "buckets")
	a = api.do("GET", "/v1/status", "").want(200, "")
	a.has("buckets", float64(5))
	a.has("unfinished", float64(3))
	a.has("in_flight", float64(0))
	a.has("dead", float64(0))
	notes := a.json["notes"].([]any)
	if last := notes[len(notes)-1].(map[string]any); last["bucket"] != "old" || !strings.HasPrefix(last["notes"].([]any)[0].(string), "orphaned") {
		t.Errorf("notes %v, want those of the orphaned bucket last", notes)
	}
	a = api.do("GET", "/v1/buckets/old", "").want(200, "")
	a.has("orphaned", true)
	a.has("unfinished", float64(1))
	a.has("rate", "7/m")
	a = api.do("GET", "/v1/buckets/roomy", "").want(200, "")
	a.has("orphaned", false)
	a.has("waiting", float64(2))
	a.has("capacity", float64(10_000))
	a.has("rate", "1/h")
	api.do("GET", "/v1/buckets/limited", "").want(200, "").lacks("last_slot")
	api.do("GET", "/v1/buckets/limited", "").want(200, "").has("unused", true)
	api.do("GET", "/v1/buckets/limited", "").want(200, "").has("rate", "1/h")
	api.do("GET", "/v1/buckets/nobody", "").want(404, "unknown-bucket")
	api.do("POST", jobs, job("")).want(405, "method-not-allowed") // it lists them only

	a = api.do("GET", "/metrics", "").want(200, "")
	if !strings.Contains(a.text, `tundish_bucket_depth{bucket="roomy"} 2`) {
		t.Error(a.text)
	}
	problems := must.Get(testutil.GatherAndLint(registry))(t)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}

	store.Kill()
	api.do("GET", "/v1/buckets", "").want(503, "store-unavailable").wantHeader("Retry-After", "1")
	api.do("GET", "/v1/buckets/roomy", "").want(503, "store-unavailable")
}

func TestProbes(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	handler := httpapi.NewOps(httpapi.OpsConfig{Buckets: newOperator(t, connect(t, store.URL()), nil, buckets(t))})
	api := serve(t, handler)
	want := func(path string, status int, text string) {
		t.Helper()
		if a := api.do("GET", path, ""); a.status != status || a.text != text {
			t.Errorf("%s: %d %q, want %d %q", path, a.status, a.text, status, text)
		}
	}
	want("/livez", 200, "ok\n")
	want("/readyz", 200, "ok\n")
	want("/readyz?verbose", 200, "[+]redis ok\n[+]serving ok\nok\n")
	api.do("GET", "/metrics", "").want(200, "")

	handler.Drain()
	want("/readyz", 503, "[+]redis ok\n[-]serving failed: the process stops\n")
	store.Stop()
	// What Redis last said is kept for 200 ms: this one has not asked yet.
	handler = httpapi.NewOps(httpapi.OpsConfig{Buckets: newOperator(t, connectFor(t, store.URL(), redisconn.DefaultTimeout), nil, buckets(t))})
	handler.Drain()
	api = serve(t, handler)
	want("/readyz", 503, "[-]redis failed: Redis is not reachable or too slow\n[-]serving failed: the process stops\n")
	want("/livez", 200, "ok\n")
}
