package httpapi_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
)

// pooledBuckets are those of all tests, "roomy" with the weight 3 in a pool.
func pooledBuckets(t *testing.T, pool *shaper.Pool) []shaper.Bucket {
	t.Helper()
	all := buckets(t)
	all[0].Pool, all[0].Weight, all[0].DedupeWindow = pool, 3, 0
	return all
}

func pooledClient(t *testing.T, store *redistest.Server, pool *shaper.Pool) *producer.Client {
	t.Helper()
	client := must.Get(producer.New(producer.Config{Redis: connect(t, store.URL()), Buckets: pooledBuckets(t, pool), Timeout: patience}))(t)
	return client
}

// dispatched writes the settings of buckets as a dispatcher does that starts.
func dispatched(t *testing.T, conn redis.UniversalClient, buckets ...shaper.Bucket) {
	t.Helper()
	workers := map[string]shaper.Worker{}
	for _, b := range buckets {
		workers[b.Name] = shaper.WorkerFunc(func(context.Context, *shaper.Attempt) shaper.Outcome { return shaper.Done(200) })
	}
	d, err := dispatcher.New(dispatcher.Config{Redis: conn, Buckets: buckets, Workers: workers})
	if err == nil {
		err = d.JoinPools(t.Context())
	}
	must.OK(t, err)
}

func pooledOperator(t *testing.T, store *redistest.Server, pool *shaper.Pool) *operator.Operator {
	t.Helper()
	return newOperator(t, connect(t, store.URL()), nil, pooledBuckets(t, pool))
}

// A bucket is shown with its pool, and one that joins a pool while it holds jobs takes none.
func TestPools(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	vendor := &shaper.Pool{Name: "vendor", Rate: rateOf(t, "9/m"), MaxInFlight: 7}
	joined := pooledClient(t, store, vendor)
	ops := serve(t, httpapi.NewOps(httpapi.OpsConfig{Buckets: pooledOperator(t, store, vendor)}))
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

	if view := pool(); view["name"] != "vendor" || view["rate"] != "9/m" || view["in_flight"] != 0.0 {
		t.Errorf("before it is used: %v", view)
	}
	former := pooledClient(t, store, nil)
	must.Get(former.Enqueue(t.Context(), shaper.Job{Bucket: "roomy", ID: "old", Payload: []byte("1")}))(t)
	for _, path := range []string{jobs, jobs} {
		api.do("POST", path, job("")).want(202, "") // where the bucket is
	}
	view := ops.do("GET", "/v1/buckets/roomy", "").want(200, "")
	if view.json["elsewhere"] != true || view.json["unfinished"] != 3.0 || view.json["pool"] != nil {
		t.Errorf("where it is: %s", view.text)
	}
	must.Get(pooledOperator(t, store, nil).As("anna").Bucket("roomy").Purge(t.Context(), operator.PurgeOptions{}))(t)
	dispatched(t, connect(t, store.URL()), pooledBuckets(t, vendor)...)
	api.do("POST", jobs, job("")).want(202, "")
	joinedView := pool()
	for key, want := range map[string]any{"rate": "9/m", "burst": 1.0, "in_flight": 0.0, "max_in_flight": 7.0, "weight": 3.0} {
		must.Equal(t, joinedView[key], want, "%s is", key)
	}
	ops.do("GET", "/v1/buckets/limited", "").want(200, "").lacks("pool")
}

// A pool is shown, changed and reset as a bucket is.
func TestPoolsByAPI(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	ops := serve(t, httpapi.NewOps(httpapi.OpsConfig{Buckets: pooledOperator(t, store,
		&shaper.Pool{Name: "vendor", Rate: rateOf(t, "9/m"), MaxInFlight: 7, Quotas: []admission.Rate{rateOf(t, "100/d")}})}))
	const path = "/v1/pools/vendor"
	a := ops.do("GET", path, "").want(200, "")
	a.lacks("revision")
	a.has("unused", true)
	if !strings.Contains(a.text, `"buckets":[{"name":"roomy","weight":3,"in_flight":0,"has_work":false}],"overrides":[],"notes":["not used yet"],"differences":[]`) {
		t.Errorf("before it is used: %s", a.text)
	}
	a = ops.do("PATCH", path, `{"rate":"20/s","max_in_flight":0}`).want(200, "")
	a.has("rate", "20/s")
	a.lacks("max_in_flight")
	var overrides []string
	for _, p := range a.json["overrides"].([]any) {
		override := p.(map[string]any)
		overrides = append(overrides, fmt.Sprint(override["setting"], " ", override["configured"], ">", override["in_force"], " ", override["by"], " ", override["at"] != nil))
	}
	if got := strings.Join(overrides, ", "); got != "rate 9/m>20/s a program on the dispatcher's machine true, max_in_flight 7>0 a program on the dispatcher's machine true" {
		t.Errorf("overrides %s", got)
	}
	if all := ops.do("GET", "/v1/pools", "").want(200, ""); !strings.HasPrefix(all.text, `{"pools":[{"name":"vendor","orphaned":false,"revision":0,"rate":"20/s","burst":1,"quotas":["100/d"],"quota_use":[{"quota":"100/d","used":0,"left":100}],"in_flight":0,`) {
		t.Error(all.text)
	}
	ops.do("DELETE", path+"/overrides/rate", "").want(200, "").has("rate", "9/m")
	ops.do("DELETE", path+"/overrides", "").want(200, "").has("max_in_flight", 7.0)
	ops.do("DELETE", path+"/overrides", "").want(200, "")

	for body, field := range map[string]string{
		`{"rate":"0/s"}`: "rate", `{"rate":"1000001/s"}`: "rate", `{"rate":5}`: "rate", `{"burst":0}`: "burst", `{"burst":1.5}`: "burst",
		`{"max_in_flight":-1}`: "max_in_flight", `{"capacity":5}`: "capacity", `{"shed":{"low":5}}`: "shed.low", `{}`: "body", `{"name":"x"}`: "name",
	} {
		wantField(t, ops.do("PATCH", path, body), field)
	}
	wantField(t, ops.do("DELETE", path+"/overrides/capacity", ""), "capacity")
	for _, other := range []string{"/v1/pools/nobody", "/v1/pools/No%20name"} {
		ops.do("GET", other, "").want(404, "unknown-pool")
		ops.do("PATCH", other, `{"burst":2}`).want(404, "unknown-pool")
		ops.do("DELETE", other+"/overrides", "").want(404, "unknown-pool")
	}
	// Whose configuration has no pools sees that of a bucket it does not have.
	stranger := serve(t, httpapi.NewOps(httpapi.OpsConfig{Buckets: newOperator(t, connect(t, store.URL()), nil, buckets(t))}))
	stranger.do("GET", path, "").want(200, "").has("orphaned", true)
	store.Kill()
	ops.do("GET", path, "").want(503, "store-unavailable")
	ops.do("PATCH", path, `{"burst":2}`).want(503, "store-unavailable")
}
