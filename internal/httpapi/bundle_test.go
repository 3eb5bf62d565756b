package httpapi_test

import (
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper/producer"
)

// Both servers open and show bundles, to the caller of a key its own alone.
func TestBundles(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	all := buckets(t)[:1]
	all[0].Limits = nil
	client := must.Get(producer.New(producer.Config{Redis: connect(t, store.URL()), Buckets: all}))(t)
	op := newOperator(t, connect(t, store.URL()), nil, all)
	everywhere := []string{apikey.AllBuckets}
	keys := []apikey.Key{
		keyOf("caller", everywhere, apikey.RoleEnqueue), keyOf("another", everywhere, apikey.RoleEnqueue), keyOf("reader", everywhere, apikey.RoleRead),
		keyOf("elsewhere", []string{"other"}, apikey.RoleEnqueue),
	}
	for name, api := range map[string]*server{
		"producer":   serve(t, httpapi.NewProducer(httpapi.ProducerConfig{Jobs: client, Operator: op, Keys: keys, Logger: logTo(t.Output())})),
		"dispatcher": serve(t, httpapi.NewOps(httpapi.OpsConfig{Buckets: op, Keys: keys, Logger: logTo(t.Output())})),
	} {
		path := "/v1/buckets/roomy/bundles/of-" + name
		api.as("caller", "GET", path, "").want(404, "unknown-bundle")
		a := api.as("caller", "PUT", path, "").want(200, "")
		a.has("ended", float64(0))
		a.lacks("size")
		api.as("caller", "PUT", path, `{"size":2}`).want(200, "").has("size", float64(2))
		for key, status := range map[string]int{"caller": 200, "reader": 200, "another": 404, "elsewhere": 403} {
			if a := api.as(key, "GET", path, ""); a.status != status {
				t.Errorf("%s shows to %s: %d %s", name, key, a.status, a.text)
			}
		}
		api.as("another", "PUT", path, "").want(409, "id-taken")
		api.as("reader", "PUT", path, "").want(403, "forbidden")
		for body, field := range map[string]string{`{"size":0}`: "size", `{"sizes":2}`: "sizes", `{"callback_url":"https://a.example/"}`: "callback_url"} {
			if a := api.as("caller", "PUT", path, body).want(400, "invalid"); !strings.Contains(a.text, `"`+field+`"`) {
				t.Errorf("%s: %s", body, a.text)
			}
		}
		api.as("caller", "PUT", "/v1/buckets/roomy/bundles/not%20valid", "").want(400, "invalid")
		api.as("caller", "PUT", "/v1/buckets/none/bundles/x", "").want(404, "unknown-bucket")
		if name != "producer" {
			continue
		}
		job := `{"payload":1,"bundle":"of-producer"}`
		api.as("caller", "POST", jobs, job).want(202, "")
		a = api.as("another", "POST", jobs, job).want(404, "unknown-bundle")
		if !strings.Contains(a.text, "open it before its first job") {
			t.Error(a.text)
		}
		a = api.as("caller", "POST", jobs+"/batch", `[`+job+`,{"bundle":"none","payload":1},{"bundle":"","payload":1}]`).want(200, "")
		a.has("admitted", float64(2))
		api.as("caller", "POST", jobs, `{"payload":1,"bundle":"not valid"}`).want(400, "invalid")
	}
}
