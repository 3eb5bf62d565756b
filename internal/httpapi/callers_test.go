package httpapi_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/producer"
)

// tenants is an API with keys: a and a2 of one caller, b of another one, a reader and an administrator. Its bucket "kept" works off what
// comes, "slow" nothing for an hour, and both have flows.
func tenants(t *testing.T) (*server, *producer.Client) {
	t.Helper()
	store := redistest.Start(t)
	kept, slow := shaper.DefaultBucket(), shaper.DefaultBucket()
	kept.Name, kept.Rate, kept.Results.Retention = "kept", rateOf(t, "1000/s"), time.Hour
	slow.Name, slow.Rate = "slow", rateOf(t, "1/h")
	flow := shaper.DefaultFlowSettings()
	flow.Key = shaper.FlowKeyJob
	kept.Flow, slow.Flow = &flow, &flow
	client := must.Get(producer.New(producer.Config{Redis: connect(t, store.URL()), Buckets: []shaper.Bucket{kept, slow}, Timeout: patience}))(t)
	t.Cleanup(client.Close)
	dispatch(t, store, []shaper.Bucket{kept}, map[string]shaper.Worker{"kept": shaper.WorkerFunc(answering)})
	enqueues := func(name, caller string, flows ...string) apikey.Key {
		key := keyOf(name, []string{apikey.AllBuckets}, apikey.RoleEnqueue)
		key.Caller, key.Flows = caller, flows
		return key
	}
	return serve(t, httpapi.NewProducer(httpapi.ProducerConfig{Jobs: client, Logger: logTo(t.Output()), Keys: []apikey.Key{
		enqueues("a", ""), enqueues("a2", "a"), enqueues("a-f", "a", "f"), enqueues("a-g", "a", "g"), enqueues("b", ""),
		enqueues("c-f", "c", "f"), enqueues("c-f2", "c", "f"),
		keyOf("read", []string{apikey.AllBuckets}, apikey.RoleRead), keyOf("admin", []string{apikey.AllBuckets}, apikey.RoleAdmin),
	}})), client
}

// as sends a request with a key.
func (s *server) as(key, method, path, body string, headers ...string) *answer {
	s.t.Helper()
	return s.do(method, path, body, append(headers, "Authorization", "Bearer "+key)...)
}

// A job is its caller's: no other caller sees it, cancels it or learns its state, while it waits and after its end.
func TestJobsAreTheirCallers(t *testing.T) {
	t.Parallel()
	api, client := tenants(t)
	for _, test := range []struct {
		bucket, body, headers string
		status                int
		state                 string // behind the enqueue
	}{
		{slowJobs, `{"id":"x","flow":"f","payload":{}}`, "", 202, "queued"},
		{keptJobs, `{"id":"x","flow":"f","payload":{"Status":200,"Body":"secret"}}`, "Prefer", 200, "done"},
	} {
		send := func(key, body string) *answer {
			if test.headers != "" {
				return api.as(key, "POST", test.bucket, body, "Prefer", "wait=30")
			}
			return api.as(key, "POST", test.bucket, body)
		}
		send("a", test.body).want(test.status, "")
		// Nobody else takes the id, with the same content or another one.
		for _, body := range []string{test.body, `{"id":"x","flow":"f","payload":{"Status":201}}`} {
			if got := send("b", body).want(409, "id-taken"); got.json["state"] != nil || strings.Contains(got.text, test.state) {
				t.Errorf("the refusal tells a state: %s", got.text)
			}
		}
		tally := api.as("b", "POST", test.bucket+"/batch", "["+test.body+`,{"id":"own","flow":"f","payload":{}}]`).want(200, "")
		if !strings.Contains(tally.text, "id-taken") || tally.json["admitted"] != float64(1) {
			t.Errorf("in a batch: %s", tally.text)
		}
		send("a2", test.body).want(test.status, "")
		send("a", `{"id":"x","flow":"f","payload":{"Status":201}}`).want(422, "id-reused")
		for _, key := range []string{"b", "c-f"} {
			api.as(key, "GET", test.bucket+"/x", "").want(404, "unknown-job")
			api.as(key, "GET", test.bucket+"/x/result", "").want(404, "unknown-job")
			api.as(key, "DELETE", test.bucket+"/x", "").want(404, "unknown-job")
		}
		for _, key := range []string{"a", "a2", "read", "admin"} {
			api.as(key, "GET", test.bucket+"/x", "").want(200, "").has("state", test.state)
		}
		must.Get(client.Enqueue(t.Context(), shaper.Job{Bucket: strings.Split(test.bucket, "/")[3], ID: "library", Flow: "f", Payload: []byte("{}")}))(t)
		api.as("a", "GET", test.bucket+"/library", "").want(404, "unknown-job")
		api.as("read", "GET", test.bucket+"/library", "").want(200, "")
		api.as("admin", "GET", test.bucket+"/library", "").want(200, "")
	}
	api.as("a2", "GET", keptJobs+"/x/result", "").want(200, "").has("body", "secret")
	api.as("a2", "DELETE", slowJobs+"/x", "").want(200, "").has("state", "cancelled")
	// The id is remembered as its caller's.
	api.as("b", "GET", slowJobs+"/x", "").want(404, "unknown-job")
	api.as("b", "DELETE", slowJobs+"/x", "").want(404, "unknown-job")
	api.as("b", "POST", slowJobs, `{"id":"x","flow":"f","payload":{}}`).want(409, "id-taken")
	api.as("a", "POST", slowJobs, `{"id":"x","flow":"f","payload":{}}`).want(409, "id-ended")
}

// Of the jobs of its caller a key sees those of its flows. When a job has ended, nothing says of which flow it was: then a key sees it if
// its caller has no key for others.
func TestFlowsOfAKeyAndJobsOfItsCaller(t *testing.T) {
	t.Parallel()
	api, _ := tenants(t)
	hidden := func(key, jobs, id string) {
		t.Helper()
		api.as(key, "GET", jobs+"/"+id, "").want(404, "unknown-job")
		api.as(key, "GET", jobs+"/"+id+"/result", "").want(404, "unknown-job")
		api.as(key, "DELETE", jobs+"/"+id, "").want(404, "unknown-job")
	}
	for _, jobs := range []string{keptJobs, slowJobs} {
		wait, status := "wait=30", 200
		if jobs == slowJobs {
			wait, status = "wait=0", 202
		}
		api.as("a-f", "POST", jobs, `{"id":"x","flow":"f","payload":{"Status":200}}`, "Prefer", wait).want(status, "")
		api.as("c-f", "POST", jobs, `{"id":"y","flow":"f","payload":{"Status":200}}`, "Prefer", wait).want(status, "")
		hidden("a-g", jobs, "x")
		api.as("c-f2", "GET", jobs+"/y", "").want(200, "")
	}
	api.as("a-f", "DELETE", slowJobs+"/x", "").want(200, "")
	api.as("c-f", "DELETE", slowJobs+"/y", "").want(200, "")
	hidden("a-g", slowJobs, "x")
	api.as("c-f2", "GET", slowJobs+"/y", "").want(200, "").has("state", "cancelled")
	api.as("c-f2", "GET", keptJobs+"/y/result", "").want(200, "")
}

// An Idempotency-Key is the caller's own: two callers may send the same one.
func TestIdempotencyKeysAreTheirCallers(t *testing.T) {
	t.Parallel()
	api, client := tenants(t)
	const body = `{"flow":"f","payload":{}}`
	post := func(key, idempotencyKey, body string) *answer {
		return api.as(key, "POST", slowJobs, body, "Idempotency-Key", idempotencyKey)
	}
	ids := map[any]bool{}
	for _, key := range []string{"a", "b"} {
		first := post(key, "order-1", body).want(202, "")
		again := post(key, `"order-1"`, body).want(202, "")
		if ids[first.json["id"]] || again.json["id"] != first.json["id"] || again.json["duplicate"] != true || first.json["duplicate"] == true {
			t.Errorf("%s: %s, then %s", key, first.text, again.text)
		}
		ids[first.json["id"]] = true
		post(key, "order-1", `{"flow":"f","payload":{"other":1}}`).want(422, "id-reused")
	}
	if a2 := post("a2", "order-1", body).want(202, ""); !ids[a2.json["id"]] || a2.json["duplicate"] != true {
		t.Errorf("another key of the caller: %s", a2.text)
	}
	// A chosen id is another thing, and both may be given if they are the same.
	api.as("b", "POST", slowJobs, `{"id":"order-1","flow":"f","payload":{"chosen":1}}`, "Idempotency-Key", "order-1").want(202, "").has("id", "order-1")
	// So is an id that a program of the library has chosen.
	must.Get(client.Enqueue(t.Context(), shaper.Job{Bucket: "slow", ID: "order-2", Flow: "f", Payload: []byte("{}")}))(t)
	if plain := post("a", "order-2", body).want(202, ""); plain.json["id"] == "order-2" || plain.json["duplicate"] == true {
		t.Errorf("beside a job of a program: %s", plain.text)
	}
}

// The ids of this program are not for callers, with keys and without.
func TestReservedIDs(t *testing.T) {
	t.Parallel()
	withKeys, client := tenants(t)
	without := serve(t, httpapi.NewProducer(httpapi.ProducerConfig{Jobs: client, Logger: logTo(t.Output())}))
	for _, id := range []string{shaper.ScheduleID + "nightly-20260101T000000Z", shaper.HookID + "0a", shaper.CallbackID + "0a", shaper.ProxyID + "0a", shaper.KeyedID("slow", "a", "order-1")} {
		body := fmt.Sprintf(`{"id":%q,"flow":"f","payload":{}}`, id)
		for name, api := range map[string]*server{"b": withKeys, "": without} {
			api.as(name, "POST", slowJobs, body).want(400, "invalid")
			api.as(name, "POST", slowJobs, `{"flow":"f","payload":{}}`, "Idempotency-Key", id).want(400, "invalid")
			if tally := api.as(name, "POST", slowJobs+"/batch", "["+body+"]").want(400, "invalid"); !strings.Contains(tally.text, "as ids that Tundish makes do") {
				t.Errorf("%s in a batch: %s", id, tally.text)
			}
		}
		// The library takes them: dispatchers enqueue so.
		receipts, err := client.Enqueue(t.Context(), shaper.Job{Bucket: "slow", ID: id, Flow: "f", Payload: []byte("{}")})
		if err != nil || receipts[0].Refusal != nil {
			t.Errorf("the library with %s: %+v, %v", id, receipts, err)
		}
	}
}

// The URLs of hooks, schedules and callbacks are secrets: nobody sees their paths. Those of other jobs are seen.
func TestURLsOfTheProgramsJobsAreWithheld(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	all := buckets(t)[:1]
	all[0].Name = "slow"
	client := must.Get(producer.New(producer.Config{Redis: connect(t, store.URL()), Buckets: all, Timeout: patience}))(t)
	t.Cleanup(client.Close)
	keys := []apikey.Key{keyOf("read", []string{"*"}, apikey.RoleRead), keyOf("put", []string{"*"}, apikey.RoleEnqueue), keyOf("admin", []string{"*"}, apikey.RoleAdmin)}
	api := serve(t, httpapi.NewProducer(httpapi.ProducerConfig{
		Jobs: client, Keys: keys, Operator: newOperator(t, connect(t, store.URL()), nil, all), Logger: logTo(t.Output()),
	}))
	for id, url := range map[string]string{
		shaper.HookID + "1": "https://a.example/***", shaper.ScheduleID + "n-1": "https://a.example/***", shaper.CallbackID + "1": "https://a.example/***",
		shaper.ScheduleID + "path-1": "/***", "plain": "https://a.example/token?token",
	} {
		job := shaper.Job{Bucket: "slow", ID: id, URL: "https://a.example/token?token", Payload: []byte("1")}
		if url == "/***" {
			job.URL = "/token"
		}
		if receipts, err := client.Enqueue(t.Context(), job); err != nil || receipts[0].Refusal != nil {
			t.Fatal(receipts, err)
		}
		for _, key := range []string{"read", "admin"} {
			api.as(key, "GET", slowJobs+"/"+id, "").want(200, "").has("url", url)
		}
		api.as("put", "GET", slowJobs+"/"+id, "").want(404, "unknown-job")
	}
	list := api.as("read", "GET", slowJobs, "").want(200, "")
	must.Equal(t, strings.Count(list.text, "token"), 2, "the list shows tokens, want those of one job: %s", list.text)
}
