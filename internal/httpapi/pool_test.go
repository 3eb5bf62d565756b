package httpapi_test

import (
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
)

// A bucket is shown with its pool, and one that joins a pool while it holds jobs takes none.
func TestPools(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	clientOf := func(pool *shaper.Pool) *shaper.Client {
		all := buckets(t)[:2]
		all[0].Pool, all[0].Weight = pool, 3
		client, err := shaper.NewClient(shaper.ClientConfig{Redis: connect(t, store.URL()), Buckets: all})
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	joined := clientOf(&shaper.Pool{Name: "vendor", Rate: rateOf(t, "9/m"), MaxInFlight: 7})
	ops := serve(t, httpapi.NewOps(httpapi.OpsConfig{Buckets: joined}))
	log := &logBuffer{}
	api := serve(t, httpapi.NewProducer(httpapi.ProducerConfig{Jobs: joined, CheckJob: checkJob, Logger: logTo(log)}))
	pool := func() map[string]any {
		t.Helper()
		a := ops.do("GET", "/v1/buckets/roomy", "").want(200, "")
		view, ok := a.json["pool"].(map[string]any)
		if !ok {
			t.Fatalf("no pool: %s", a.text)
		}
		return view
	}

	if view := pool(); view["name"] != "vendor" || view["rate"] != nil || view["in_flight"] != 0.0 {
		t.Errorf("before it is used: %v", view)
	}
	former := clientOf(nil)
	if _, err := former.Enqueue(t.Context(), shaper.Job{Bucket: "roomy", ID: "old", Payload: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	for path, body := range map[string]string{jobs: job(""), jobs + "/batch": "[" + job("") + "]"} {
		a := api.do("POST", path, body).want(503, "store-unavailable")
		a.has("detail", "the bucket is in another pool than this process is configured for, so that it takes none: the operator is told")
		a.wantHeader("Retry-After", "1")
	}
	if !strings.Contains(log.String(), "1 of its jobs are kept with the tag") {
		t.Error("the log does not say what to do")
	}
	view := ops.do("GET", "/v1/buckets/roomy", "").want(200, "")
	if view.json["elsewhere"] != true || view.json["unfinished"] != 1.0 || view.json["pool"] != nil {
		t.Errorf("where it is: %s", view.text)
	}
	if _, err := former.Cancel(t.Context(), "roomy", "old"); err != nil {
		t.Fatal(err)
	}
	api.do("POST", jobs, job("")).want(202, "")
	joinedView := pool()
	for key, want := range map[string]any{"rate": "9/m", "burst": 1.0, "in_flight": 0.0, "max_in_flight": 7.0, "weight": 3.0} {
		if joinedView[key] != want {
			t.Errorf("%s is %v, want %v", key, joinedView[key], want)
		}
	}
	ops.do("GET", "/v1/buckets/limited", "").want(200, "").lacks("pool")
}
