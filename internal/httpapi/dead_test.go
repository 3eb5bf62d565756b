package httpapi_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/internal/stored"
)

// Dead letters are found, redriven and dropped by what they have in common.
func TestDeadByAPI(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	all := buckets(t)[:1]
	all[0].Name = "plain"
	ops := serve(t, httpapi.NewOps(httpapi.OpsConfig{Buckets: newOperator(t, connect(t, store.URL()), nil, all), Logger: logTo(t.Output())}))
	ops.do("POST", "/v1/buckets/plain/resume", "").want(200, "")
	client := connect(t, store.URL())
	pipe := client.Pipeline()
	key := stored.Key("plain", "")
	for i := range 9 {
		id := fmt.Sprint("j", i)
		pipe.HSet(t.Context(), key+"body", id, fmt.Sprintf("%d 1 00000000000cn001 \n{\"n\":%d}", i, i))
		pipe.HSet(t.Context(), key+"meta", id, fmt.Sprintf(`5 1 1 0 0 - {"cause":"permanent","status":%d,"reason":"http_404","detail":"gone to %d"}`, 400+i%3, i))
		pipe.ZAdd(t.Context(), key+"dead", redis.Z{Member: id, Score: float64(1783228800000000 + i)})
	}
	const last = `{"at":1783228800123456,"number":1,"took":1500000,"status":401,"reason":"http_401","detail":"no","result":"dead"}`
	pipe.HSet(t.Context(), key+"attempts", "j7", "1783228800123456\n"+last)
	must.Get(pipe.Exec(t.Context()))(t)
	const path = "/v1/buckets/plain/dead"
	first := ops.do("GET", path+"?status=401&limit=2", "").want(200, "")
	if dead, _ := first.json["dead"].([]any); len(dead) != 2 || first.json["next"] == nil {
		t.Fatalf("the first page is %s", first.text)
	}
	wantLastAttempt(t, first)
	const reasons = `{"reasons":[{"cause":"permanent","reason":"http_404","status":401,"dead_letters":3,"oldest":"2026-07-05T05:20:00.000001Z","newest":"2026-07-05T05:20:00.000007Z"}],"looked_at":9}`
	if a := ops.do("GET", path+"/reasons?status=401", "").want(200, ""); strings.TrimSpace(a.text) != reasons {
		t.Errorf("the reasons are %s", a.text)
	}
	ops.do("GET", path+"/reasons?cause=bad", "").want(400, "invalid")
	ops.do("GET", path+"/reasons?cursor=x", "").want(400, "invalid")
	ops.do("GET", "/v1/buckets/nosuch/dead/reasons", "").want(404, "unknown-bucket")
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
		`{"filter":{"status":"x"}}`: "status", `{"filter":[]}`: "filter", `{"filters":{}}`: "filters", `{"dry_run":1}`: "dry_run", `{"cursor":"x","all":true}`: "cursor",
	} {
		wantField(t, ops.do("POST", path+"/redrive", body), field)
	}
	wants("POST", path+"/redrive", `{"filter":{"status":402},"dry_run":true}`, map[string]any{"matched": 3.0, "moved": 0.0})
	// There is room for two: the answer leads to the third, which is moved once a job has left.
	client.HSet(t.Context(), key+"settings", "capacity", 2)
	full := ops.do("POST", path+"/redrive", `{"filter":{"status":402}}`).want(200, "")
	full.has("moved", 2.0)
	full.has("full", 1.0)
	full.has("waiting", true)
	client.LPop(t.Context(), key+"q:normal:")
	client.HDel(t.Context(), key+"body", "j2")
	client.HDel(t.Context(), key+"meta", "j2")
	third := ops.do("POST", path+"/redrive", fmt.Sprintf(`{"filter":{"status":402},"cursor":%q}`, full.json["next"])).want(200, "")
	third.has("moved", 1.0)
	third.lacks("next")
	third.lacks("waiting")
	client.HSet(t.Context(), key+"settings", "capacity", 100)
	wants("POST", path+"/redrive", `{"filter":{"status":402}}`, map[string]any{"moved": 0.0})
	// An empty filter, as of a program whose variable is empty, does not mean every dead letter.
	for _, body := range []string{`{}`, `{"filter":{}}`, `{"filter":{},"confirm":"plain"}`, `{"all":false,"confirm":"plain"}`} {
		wantField(t, ops.do("POST", path+"/redrive", body), "filter")
		wantField(t, ops.do("DELETE", path, body), "filter")
	}
	for body, field := range map[string]string{
		`{"all":true,"filter":{"status":401}}`: "all", `{"ids":["j1"],"all":true}`: "ids", `{"ids":["j1"],"filter":{"status":401}}`: "ids", `{"ids":[]}`: "ids",
		`{"ids":["j1"],"dry_run":true}`: "ids", `{"ids":"j1"}`: "ids", `{"limit":3,"filter":{"status":401}}`: "limit", `{"limit":0,"all":true}`: "limit", `{"all":1}`: "all",
	} {
		wantField(t, ops.do("POST", path+"/redrive", body), field)
		wantField(t, ops.do("DELETE", path, body), field)
	}
	wantField(t, ops.do("DELETE", path, `{"all":true}`), "confirm")
	wantField(t, ops.do("DELETE", path, `{"all":true,"confirm":"other"}`), "confirm")
	wantField(t, ops.do("DELETE", path, `{"all":true,"limit":2,"confirm":"plain"}`), "limit")
	wantField(t, ops.do("GET", path+"?offset=1&status=401", ""), "offset")
	wantField(t, ops.do("GET", path+"?offset=-1", ""), "offset")
	newest := ops.do("GET", path+"?offset=1&limit=2", "").want(200, "")
	if dead, _ := newest.json["dead"].([]any); len(dead) != 2 || dead[0].(map[string]any)["id"] != "j6" || newest.json["next"] != nil {
		t.Errorf("from an offset on: %s", newest.text)
	}
	wants("POST", path+"/redrive", `{"ids":["j0","nosuch"]}`, map[string]any{"moved": 1.0, "unknown": 1.0})
	wants("POST", path+"/redrive", `{"all":true,"limit":1}`, map[string]any{"moved": 1.0})
	dropped := ops.do("DELETE", path, `{"ids":["j1","j4","nosuch"]}`).want(200, "")
	if dropped.has("dropped", 1.0); !strings.Contains(dropped.text, `"not_dead":[{"id":"j1","state":"queued"},{"id":"nosuch"}]`) {
		t.Errorf("by their ids: %s", dropped.text)
	}
	wants("DELETE", path, `{"dry_run":true}`, map[string]any{"matched": 3.0})
	wants("DELETE", path, `{"all":true,"confirm":"plain"}`, map[string]any{"dropped": 3.0})
	ops.do("GET", "/v1/buckets/nobody/dead", "").want(404, "")
}

// wantLastAttempt demands that the first of a list of dead letters tells how its last attempt ended.
func wantLastAttempt(t *testing.T, page *answer) {
	t.Helper()
	dead, _ := page.json["dead"].([]any)
	letter, _ := dead[0].(map[string]any)
	want := []any{map[string]any{
		"at": "2026-07-05T05:20:00.123456Z", "number": 1., "took_seconds": 1.5, "status": 401., "reason": "http_401", "detail": "no",
		"result": "dead",
	}}
	must.Equal(t, cmp.Diff(want, letter["last_attempts"]), "", "the last attempts of %v", letter["id"])
}
