package httpapi_test

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/producer"
)

// With max_result = 0, a bucket keeps a log of deliveries: no body and no header of an answer. A caller sees what is logged of its own jobs, and
// readers list it, by flow and the newest first.
func TestLogOfDeliveries(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	b := shaper.DefaultBucket()
	b.Name, b.Rate, b.Results.Retention, b.Results.MaxBody = "kept", rateOf(t, "1000/s"), time.Hour, 0
	b.Flow = new(shaper.DefaultFlowSettings())
	b.Flow.Key = shaper.FlowKeyJob
	all := []shaper.Bucket{b}
	client := must.Get(producer.New(producer.Config{Redis: connect(t, store.URL()), Buckets: all, Timeout: patience}))(t)
	t.Cleanup(client.Close)
	dispatch(t, store, all, map[string]shaper.Worker{"kept": shaper.WorkerFunc(answering)})
	key := func(name string, role apikey.Role) apikey.Key { return keyOf(name, []string{apikey.AllBuckets}, role) }
	bound := key("a-g", apikey.RoleEnqueue)
	bound.Caller, bound.Flows = "a", []string{"g"}
	api := serve(t, httpapi.NewProducer(httpapi.ProducerConfig{
		Jobs: client, Operator: newOperator(t, connect(t, store.URL()), nil, all), Logger: logTo(t.Output()),
		Keys: []apikey.Key{key("a", apikey.RoleEnqueue), key("b", apikey.RoleEnqueue), key("read", apikey.RoleRead), bound},
	}))
	send := func(id, flow, order string) {
		t.Helper()
		a := api.as("a", "POST", keptJobs, fmt.Sprintf(`{"id":%q,"flow":%q,"payload":%s}`, id, flow, order), "Prefer", "wait=30").want(200, "")
		if a.lacks("headers"); a.json["body"] != nil && a.json["body"] != "" {
			t.Errorf("the body of %s is told: %s", id, a.text)
		}
	}
	send("first", "f", `{"Status":200,"Body":"secret"}`)
	send("dies", "f", `{"Status":404,"Body":"secret"}`)
	send("second", "g", `{"Status":204}`)
	send("third", "f", `{"Status":201,"Body":"secret"}`)

	for _, reader := range []string{"a", "read"} {
		a := api.as(reader, "GET", keptJobs+"/first", "").want(200, "")
		a.has("state", "done")
		a.has("flow", "f")
		a.has("attempts", float64(1))
		if last, _ := a.json["last_response"].(map[string]any); last["status"] != float64(200) || a.json["departed_at"] == nil || a.json["took_seconds"] == nil {
			t.Errorf("%s sees %s", reader, a.text)
		}
	}
	attempts, _ := api.as("read", "GET", keptJobs+"/first/attempts", "").want(200, "").json["attempts"].([]any)
	if len(attempts) != 1 || attempts[0].(map[string]any)["result"] != "done" || attempts[0].(map[string]any)["status"] != 200. {
		t.Errorf("attempts of a job that is done: %v", attempts)
	}
	api.as("b", "GET", keptJobs+"/first", "").want(404, "unknown-job")
	api.as("b", "GET", keptJobs+"/first/result", "").want(404, "unknown-job")
	api.as("a-g", "GET", keptJobs+"/first", "").want(404, "unknown-job")
	api.as("b", "GET", keptJobs+"?state=done", "").want(403, "forbidden")
	api.as("a", "POST", keptJobs, `{"id":"first","flow":"f","payload":{"Status":200,"Body":"secret"}}`).want(202, "").has("duplicate", true)

	list := func(query string) (ids []string, next string) {
		t.Helper()
		a := api.as("read", "GET", keptJobs+"?state=done"+query, "").want(200, "")
		for _, j := range a.json["jobs"].([]any) {
			ids = append(ids, fmt.Sprint(j.(map[string]any)["id"]))
		}
		next, _ = a.json["next"].(string)
		return ids, next
	}
	if ids, next := list(""); fmt.Sprint(ids) != "[third second first]" || next != "" {
		t.Errorf("done are %v, next %q", ids, next)
	}
	if ids, _ := list("&flow=f"); fmt.Sprint(ids) != "[third first]" {
		t.Errorf("of the flow: %v", ids)
	}
	if ids, _ := list("&since=" + url.QueryEscape(time.Now().Add(time.Hour).Format(time.RFC3339))); len(ids) != 0 {
		t.Errorf("of later: %v", ids)
	}
	var paged []string
	for next, again := "", true; again; again = next != "" {
		var ids []string
		ids, next = list("&flow=f&limit=1&cursor=" + next)
		paged = append(paged, ids...)
	}
	must.Equal(t, fmt.Sprint(paged), "[third first]", "in pages: %v", paged)
	wantField(t, api.as("read", "GET", keptJobs+"?state=done&cursor=x", ""), "cursor")
}
