package httpapi_test

import (
	"context"
	"encoding/json"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
	"github.com/tundish-io/tundish/shaper/producer"
)

// answering is a downstream whose answers are what jobs bring.
func answering(_ context.Context, a *shaper.Attempt) shaper.Outcome {
	if err := a.Depart(); err != nil {
		return shaper.Returned("late")
	}
	var order struct {
		Status int
		Body   string
		Bytes  []byte
	}
	if err := json.Unmarshal(a.Payload, &order); err != nil {
		return shaper.Dead("unreadable", err.Error())
	}
	outcome := shaper.Done(order.Status)
	if order.Status >= 400 {
		outcome = shaper.Dead("http_404", "not found")
	}
	if a.AnswerBytes > 0 && order.Status > 0 {
		outcome.Answer = &shaper.Answer{
			Status: order.Status, Headers: map[string][]string{"X-Id": {a.ID}}, Body: append([]byte(order.Body), order.Bytes...),
		}
	}
	return outcome
}

// dispatch runs a dispatcher until the test ends.
func dispatch(t *testing.T, store *redistest.Server, buckets []shaper.Bucket, workers map[string]shaper.Worker) {
	t.Helper()
	d := must.Get(dispatcher.New(dispatcher.Config{Redis: connect(t, store.URL()), Buckets: buckets, Workers: workers}))(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// answeringAPI is the producer's API on a real Redis with a dispatcher. Its bucket "kept" keeps results, "slow" sends one job an hour.
func answeringAPI(t *testing.T, keys ...apikey.Key) (*server, *httpapi.Handler) {
	t.Helper()
	store := redistest.Start(t)
	var buckets []shaper.Bucket
	workers := map[string]shaper.Worker{}
	for _, name := range []string{"plain", "kept", "slow"} {
		b := shaper.DefaultBucket()
		b.Name, b.Rate = name, rateOf(t, "1000/s")
		switch name {
		case "kept":
			b.Results.Retention = time.Hour
			b.Flow = new(shaper.DefaultFlowSettings())
			b.Flow.Key = shaper.FlowKeyJob
		case "slow":
			b.Rate = rateOf(t, "1/h")
		}
		buckets, workers[name] = append(buckets, b), shaper.WorkerFunc(answering)
	}
	client := must.Get(producer.New(producer.Config{Redis: connect(t, store.URL()), Buckets: buckets, Timeout: patience}))(t)
	dispatch(t, store, buckets, workers)
	handler := httpapi.NewProducer(httpapi.ProducerConfig{Jobs: client, Logger: logTo(t.Output()), Keys: keys})
	s := serve(t, handler)
	t.Cleanup(client.Close)
	return s, handler
}

const (
	plainJobs = "/v1/buckets/plain/jobs"
	keptJobs  = "/v1/buckets/kept/jobs"
	slowJobs  = "/v1/buckets/slow/jobs"
)

func TestPreferWait(t *testing.T) {
	t.Parallel()
	api, handler := answeringAPI(t)
	for name, tt := range map[string]struct {
		payload string
		want    map[string]any
	}{
		"done":      {`{"Status":200,"Body":"hello"}`, map[string]any{"state": "done", "status": 200., "body": "hello", "headers": map[string]any{"X-Id": []any{"done"}}}},
		"no-body":   {`{"Status":204}`, map[string]any{"state": "done", "status": 204., "body": "", "headers": map[string]any{"X-Id": []any{"no-body"}}}},
		"not-text":  {`{"Status":200,"Bytes":"//4="}`, map[string]any{"state": "done", "status": 200., "body_base64": "//4=", "headers": map[string]any{"X-Id": []any{"not-text"}}}},
		"dead":      {`{"Status":404,"Body":"no"}`, map[string]any{"state": "dead", "status": 404., "body": "no", "cause": "permanent", "reason": "http_404", "detail": "not found", "headers": map[string]any{"X-Id": []any{"dead"}}}},
		"no-answer": {`{}`, map[string]any{"state": "done"}},
	} {
		a := api.do("POST", plainJobs, `{"id":"`+name+`","payload":`+tt.payload+`}`, "Prefer", "respond-async, wait=30").want(200, "")
		if applied := a.header.Get("Preference-Applied"); applied != "wait=30" || a.header.Get("Location") != plainJobs+"/"+name {
			t.Errorf("%s: applied %q, at %q", name, applied, a.header.Get("Location"))
		}
		for _, key := range []string{"enqueued_at", "departed_at", "took_seconds"} {
			if _, ok := a.json[key]; !ok {
				t.Errorf("%s: no %s in %s", name, key, a.text)
			}
			delete(a.json, key)
		}
		tt.want["id"], tt.want["bucket"], tt.want["attempts"] = name, "plain", 1.
		must.Equal(t, cmp.Diff(tt.want, a.json), "", "%s", name)
		// The same request again, as after a connection that broke.
		if again := api.do("POST", plainJobs, `{"id":"`+name+`","payload":`+tt.payload+`}`, "Prefer", "wait=30"); name != "dead" {
			again.want(200, "").has("id", name)
		} else {
			again.want(409, "id-ended")
		}
	}

	// No result in time: what it is without the header.
	api.do("POST", slowJobs, `{"payload":{"Status":200}}`).want(202, "")
	a := api.do("POST", slowJobs, `{"id":"late","payload":{"Status":200}}`, "Prefer", "wait=1").want(202, "")
	a.has("state", "queued")
	must.Equal(t, a.header.Get("Preference-Applied"), "wait=1", "%v", a.header)
	if a := api.do("POST", slowJobs, `{"payload":{"Status":200}}`, "Prefer", "wait=0").want(202, ""); a.header.Get("Preference-Applied") != "" {
		t.Errorf("a wait of none: %v", a.header)
	}
	for _, prefer := range []string{"wait", "wait=soon", "wait=-1", "wait=30s"} {
		api.do("POST", slowJobs, `{"payload":{}}`, "Prefer", prefer).want(400, "invalid")
	}
	api.do("POST", slowJobs, `{"payload":{}}`, "Prefer", "return=minimal").want(202, "")
	api.do("POST", "/v1/buckets/none/jobs", `{"payload":{}}`, "Prefer", "wait=5").want(404, "unknown-bucket")

	// A server that stops lets nobody wait.
	answered := make(chan *answer)
	go func() { answered <- api.do("POST", slowJobs, `{"id":"stopped","payload":{}}`, "Prefer", "wait=300") }()
	handler.Drain()
	(<-answered).want(202, "")
}

// A wait that ends without an answer tells the state as it is: of a job that was enqueued without a wait, that expires, or that is cancelled.
func TestPreferWaitTellsTheStateAsItIs(t *testing.T) {
	t.Parallel()
	api, _ := answeringAPI(t)
	// In flight while the second request waits for it; its answer is not kept, as nobody waited when it came.
	const job = `{"id":"before","payload":{"Status":204}}`
	api.do("POST", plainJobs, job).want(202, "")
	a := api.do("POST", plainJobs, job, "Prefer", "wait=30").want(200, "")
	a.has("state", "done")
	a.has("id", "before")

	// The first slot is in an hour; a claim gives up what has expired by then.
	expired := api.do("POST", plainJobs, `{"id":"never","delay":"1s","expires_in":"10ms","payload":{"Status":200}}`, "Prefer", "wait=30").want(200, "")
	expired.has("state", "dead")
	expired.has("cause", "expired")

	answered := make(chan *answer)
	go func() { answered <- api.do("POST", slowJobs, `{"id":"gone","payload":{}}`, "Prefer", "wait=300") }()
	for api.do("DELETE", slowJobs+"/gone", "").status != 200 {
		runtime.Gosched()
	}
	(<-answered).want(200, "").has("state", "cancelled")

	// One that waits on: the state at the end of the time, not that of the enqueue.
	api.do("POST", plainJobs, `{"id":"later","delay":"1h","payload":{}}`, "Prefer", "wait=1").want(202, "").has("state", "scheduled")
}

// A job that names max_wait is refused where it would have to wait longer, at once also where its client would wait for the result.
func TestMaxWait(t *testing.T) {
	t.Parallel()
	api, _ := answeringAPI(t)
	const job = `{"max_wait":"10m","payload":{}}`
	for _, header := range [][]string{nil, {"Prefer", "wait=300"}} {
		a := api.do("POST", slowJobs, job, header...).want(429, "wait-too-long") // the first slot is in an hour
		if retry, _ := strconv.Atoi(a.header.Get("Retry-After")); retry < 3600-600-10 || retry > 3600 {
			t.Errorf("%v: Retry-After: %d", header, retry)
		}
	}
	api.do("POST", slowJobs, `{"max_wait":"2h","payload":{}}`).want(202, "")
	api.do("POST", plainJobs, `{"max_wait":"2s","delay":"1h","payload":{}}`).want(202, "") // it is not asked of a delayed job

	batch := api.do("POST", slowJobs+"/batch", `[{"max_wait":"10m","payload":{}},{"id":"any","payload":{}}]`).want(200, "")
	batch.has("admitted", 1.0)
	batch.has("refused", 1.0)
}

func TestResultOverHTTP(t *testing.T) {
	t.Parallel()
	api, _ := answeringAPI(t, func() []apikey.Key {
		bound := keyOf("bound", []string{apikey.AllBuckets}, apikey.RoleEnqueue)
		bound.Flows, bound.Caller = []string{"a"}, "enqueue"
		return []apikey.Key{
			bound, keyOf("enqueue", []string{apikey.AllBuckets}, apikey.RoleEnqueue),
			keyOf("read", []string{apikey.AllBuckets}, apikey.RoleRead), keyOf("check", []string{apikey.AllBuckets}, apikey.RoleCheck),
		}
	}()...)
	auth := func(key string) []string { return []string{"Authorization", "Bearer " + key} }
	post := func(path, body string) *answer {
		return api.do("POST", path, body, append(auth("enqueue"), "Prefer", "wait=30")...)
	}
	post(keptJobs, `{"id":"a","flow":"a","payload":{"Status":200,"Body":"of a"}}`).want(200, "")
	post(keptJobs, `{"id":"b","flow":"b","payload":{"Status":200,"Body":"of b"}}`).want(200, "")
	api.do("GET", keptJobs+"/a/result", "", auth("enqueue")...).want(200, "").has("body", "of a")
	api.do("GET", keptJobs+"/b/result", "", auth("read")...).want(200, "").has("body", "of b")
	api.do("GET", keptJobs+"/a/result", "", auth("bound")...).want(200, "").has("body", "of a")
	api.do("GET", keptJobs+"/b/result", "", auth("bound")...).want(404, "unknown-job")
	api.do("GET", keptJobs+"/b/result", "", auth("check")...).want(403, "forbidden")
	api.do("GET", keptJobs+"/c/result", "", auth("read")...).want(404, "unknown-job")
	api.do("GET", "/v1/buckets/none/jobs/c/result", "", auth("read")...).want(404, "unknown-bucket")
	for n := range 2 { // the second waits for an hour
		api.do("POST", slowJobs, `{"id":"slow`+string(rune('0'+n))+`","payload":{}}`, auth("enqueue")...).want(202, "")
	}
	api.do("GET", slowJobs+"/slow1/result", "", auth("read")...).want(404, "not-ended").has("state", "queued")
	api.do("DELETE", slowJobs+"/slow1", "", auth("enqueue")...).want(200, "")
	api.do("GET", slowJobs+"/slow1/result", "", auth("read")...).want(404, "no-result").has("state", "cancelled")
}

// A client that goes away while it waits ends nothing but its wait.
func TestPreferWaitOfAClientThatLeaves(t *testing.T) {
	t.Parallel()
	api, _ := answeringAPI(t)
	api.do("POST", slowJobs, `{"payload":{}}`).want(202, "")
	ctx, leave := context.WithCancel(t.Context())
	r := must.Get(http.NewRequestWithContext(ctx, "POST", api.http.URL+slowJobs, strings.NewReader(`{"id":"left","payload":{}}`)))(t)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Prefer", "wait=300")
	failed := make(chan error, 1)
	go func() {
		response, err := api.http.Client().Do(r)
		if err == nil {
			response.Body.Close()
		}
		failed <- err
	}()
	for api.do("GET", slowJobs+"/left", "").status == 404 {
	}
	leave()
	if err := <-failed; err == nil {
		t.Error("it was answered")
	}
	api.do("GET", slowJobs+"/left", "").want(200, "").has("state", "queued")
}
