package httpapi_test

import (
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/producer"
)

// A caller of a key enqueues only for flows that an operator has made, alone and in batches. It cannot make one, not by its jobs either.
func TestAKeyCannotMakeAFlowThatHasToExist(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	flow := shaper.DefaultFlowSettings()
	flow.Key, flow.MustExist, flow.NeedsURL = shaper.FlowKeyJob, true, true
	all := buckets(t)[:1]
	all[0].Flow, all[0].Limits = &flow, nil
	client := must.Get(producer.New(producer.Config{Redis: connect(t, store.URL()), Buckets: all}))(t)
	api := serve(t, httpapi.NewProducer(httpapi.ProducerConfig{
		Jobs: client, Operator: newOperator(t, connect(t, store.URL()), nil, all), Keys: []apikey.Key{
			keyOf("caller", []string{apikey.AllBuckets}, apikey.RoleEnqueue), keyOf("admin", []string{apikey.AllBuckets}, apikey.RoleAdmin),
		}, Logger: logTo(t.Output()),
	}))
	const acme = "/v1/buckets/roomy/flow?flow=acme"
	send := func(body string) *answer { return api.as("caller", "POST", jobs, body) }
	job := `{"flow":"acme","payload":1}`
	if a := send(job).want(404, "unknown-flow"); !strings.Contains(a.json["detail"].(string), "flow set --create") {
		t.Errorf("detail %v", a.json["detail"])
	}
	api.as("caller", "PATCH", acme+"&create=true", `{"weight":1}`).want(403, "forbidden")
	a := api.as("admin", "GET", acme, "").want(200, "")
	a.has("missing", true)
	a.has("unknown", true)
	api.as("admin", "PATCH", acme+"&create=true", `{"weight":1}`).want(200, "").lacks("missing")
	if a := send(job).want(404, "unknown-flow"); !strings.Contains(a.json["detail"].(string), "has no URL") {
		t.Errorf("detail %v", a.json["detail"])
	}
	api.as("admin", "PATCH", acme, `{"url":"https://acme.example/hook"}`).want(200, "")
	send(job).want(202, "")
	a = api.as("caller", "POST", jobs+"/batch", `[`+job+`,{"flow":"acne","payload":1},`+job+`]`).want(200, "")
	a.has("admitted", float64(2))
	if second := a.json["results"].([]any)[1].(map[string]any); second["status"] != float64(404) || second["code"] != "unknown-flow" {
		t.Errorf("in a batch: %s", a.text)
	}
	a = api.as("admin", "DELETE", acme, "").want(200, "")
	a.has("missing", true)
	a.has("waiting", float64(3))
}
