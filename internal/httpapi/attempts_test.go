package httpapi_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/stored"
)

// The attempts of a job are listed, the oldest first. Of one that was never tried there are none.
func TestAttempts(t *testing.T) {
	t.Parallel()
	api, store := producerAPI(t)
	api.do("POST", jobs, job(`"id":"a"`)).want(202, "")
	a := api.do("GET", jobs+"/a/attempts", "").want(200, "")
	if diff := cmp.Diff(map[string]any{"attempts": []any{}}, a.json); diff != "" {
		t.Error(diff)
	}
	api.do("GET", jobs+"/a", "").want(200, "").lacks("kept_attempts")

	const first = `{"at":1783228800123456,"number":1,"took":1500000,"reason":"connection","detail":"dial tcp (address): refused","addresses":["10.0.0.7:443"],"result":"retry"}`
	const second = `{"at":1783228860000000,"number":3,"result":"held"}`
	text := fmt.Sprintf("1783228800123456\n%s\n%s", first, second)
	must.OK(t, store.Client().HSet(t.Context(), stored.Key("roomy", "attempts"), "a", text).Err())
	a = api.do("GET", jobs+"/a/attempts", "").want(200, "")
	want := map[string]any{"attempts": []any{
		map[string]any{"at": "2026-07-05T05:20:00.123456Z", "number": 1., "took_seconds": 1.5, "reason": "connection", "detail": "dial tcp 10.0.0.7:443: refused", "result": "retry"},
		map[string]any{"at": "2026-07-05T05:21:00Z", "number": 3., "took_seconds": 0., "result": "held"},
	}}
	if diff := cmp.Diff(want, a.json); diff != "" {
		t.Error(diff)
	}
	api.do("GET", jobs+"/a", "").want(200, "").has("kept_attempts", 2.)
	api.do("GET", jobs+"/b/attempts", "").want(404, "unknown-job")
	api.do("GET", "/v1/buckets/nobody/jobs/a/attempts", "").want(404, "unknown-bucket")
	api.do("POST", jobs+"/a/attempts", "").want(405, "")

	bound := serve(t, httpapi.NewProducer(httpapi.ProducerConfig{
		Jobs: newClient(t, connect(t, store.URL()), nil), Logger: logTo(t.Output()),
		Keys: []apikey.Key{
			keyOf("enqueue", []string{apikey.AllBuckets}, apikey.RoleEnqueue), keyOf("read", []string{apikey.AllBuckets}, apikey.RoleRead),
		},
	}))
	bound.do("GET", jobs+"/a/attempts", "", "Authorization", "Bearer read").want(200, "")
	bound.do("GET", jobs+"/a/attempts", "", "Authorization", "Bearer enqueue").want(403, "forbidden")
}
