package httpapi_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/redistest"
)

// Dead letters are found, redriven and dropped by what they have in common.
func TestDeadByAPI(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	all := buckets(t)[:1]
	all[0].Name = "plain"
	ops := serve(t, httpapi.NewOps(httpapi.OpsConfig{Buckets: newOperator(t, connect(t, store.URL()), nil, all), Logger: logTo(t.Output())}))
	ops.do("POST", "/v1/buckets/plain/resume", "").want(200, "")
	pipe := connect(t, store.URL()).Pipeline()
	const key = "tundish:{plain}:b:plain:"
	for i := range 9 {
		id := fmt.Sprint("j", i)
		pipe.HSet(t.Context(), key+"body", id, fmt.Sprintf("%d 1 00000000000cn001 \n{\"n\":%d}", i, i))
		pipe.HSet(t.Context(), key+"meta", id, fmt.Sprintf(`5 1 1 0 0 - {"cause":"permanent","status":%d,"reason":"http_404","detail":"gone to %d"}`, 400+i%3, i))
		pipe.ZAdd(t.Context(), key+"dead", redis.Z{Member: id, Score: float64(1783228800000000 + i)})
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	const path = "/v1/buckets/plain/dead"
	first := ops.do("GET", path+"?status=401&limit=2", "").want(200, "")
	if dead, _ := first.json["dead"].([]any); len(dead) != 2 || first.json["next"] == nil {
		t.Fatalf("the first page is %s", first.text)
	}
	rest := ops.do("GET", path+"?status=401&limit=2&cursor="+fmt.Sprint(first.json["next"]), "").want(200, "")
	rest.lacks("next")
	if dead, _ := rest.json["dead"].([]any); len(dead) != 1 {
		t.Errorf("the second page is %s", rest.text)
	}
	wants := func(method, path, body string, want map[string]any) {
		t.Helper()
		a := ops.do(method, path, body).want(200, "")
		for member, value := range want {
			a.has(member, value)
		}
	}
	wants("GET", path+"?q=gone+to+7&since=2026-07-05T05:20:00Z", "", map[string]any{"looked_at": 9.0})
	for query, field := range map[string]string{
		"status=x": "status", "status=42": "status", "cause=bad": "cause", "since=yesterday": "since", "limit=0": "limit", "cursor=x": "cursor", "colour=red": "colour",
	} {
		wantField(t, ops.do("GET", path+"?"+query, ""), field)
	}
	for body, field := range map[string]string{
		`{"filter":{"status":"x"}}`: "status", `{"filter":[]}`: "filter", `{"filters":{}}`: "filters", `{"dry_run":1}`: "dry_run", `{"cursor":"x"}`: "cursor",
	} {
		wantField(t, ops.do("POST", path+"/redrive", body), field)
	}
	wants("POST", path+"/redrive", `{"filter":{"status":402},"dry_run":true}`, map[string]any{"matched": 3.0, "moved": 0.0})
	wants("POST", path+"/redrive", `{"filter":{"status":402}}`, map[string]any{"moved": 3.0})
	wants("POST", path+"/redrive", `{"filter":{"status":402}}`, map[string]any{"moved": 0.0})
	wantField(t, ops.do("DELETE", path, `{"filter":{}}`), "confirm")
	wantField(t, ops.do("DELETE", path, `{"confirm":"other"}`), "confirm")
	wants("DELETE", path, `{"dry_run":true}`, map[string]any{"matched": 6.0})
	wants("DELETE", path, `{"confirm":"plain"}`, map[string]any{"dropped": 6.0})
	ops.do("GET", "/v1/buckets/nobody/dead", "").want(404, "")
}
