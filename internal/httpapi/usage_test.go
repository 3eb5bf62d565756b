package httpapi_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/internal/stored"
	"github.com/tundish-io/tundish/shaper"
)

// The use of models is told to keys that may look at the bucket. A caller is told by the name of its key, where the server has one, and by
// its mark elsewhere.
func TestUsage(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	caller := keyOf("a-key", nil, apikey.RoleEnqueue)
	caller.Caller = "anna"
	all := []string{apikey.AllBuckets}
	keys := []apikey.Key{
		caller, keyOf("read", all, apikey.RoleRead), keyOf("admin", all, apikey.RoleAdmin), keyOf("enqueue", all, apikey.RoleEnqueue),
		keyOf("elsewhere", []string{"small"}, apikey.RoleRead),
	}
	handler := httpapi.NewOps(httpapi.OpsConfig{Buckets: newOperator(t, connect(t, store.URL()), nil, buckets(t)), Keys: keys, Logger: logTo(t.Output())})
	api := serve(t, handler)
	const path = "/v1/buckets/roomy/usage"
	other := shaper.CallerMark("other")
	err := store.Client().HSet(t.Context(), stored.Key("roomy", "use:20260102"),
		shaper.CallerMark("anna")+" gpt-4o fx", "2 30 4", other+" gpt-4o fx", "1 20 3", " o%2F3 fy", "1 10 2", "* gpt-4o *", "1 1 1").Err()
	must.OK(t, err)

	a := api.as("read", "GET", path+"?from=2026-01-01&to=2026-01-31&by=caller,flow,model", "").want(200, "")
	row := func(calls, input, output float64, more ...string) map[string]any {
		m := map[string]any{"calls": calls, "input": input, "output": output, "charged": input + output}
		for i := 0; i < len(more); i += 2 {
			m[more[i]] = more[i+1]
		}
		return m
	}
	above := row(1, 1, 1, "model", "gpt-4o")
	above["other"] = true
	want := map[string]any{
		"bucket": "roomy", "from": "2026-01-01", "to": "2026-01-31", "by": []any{"caller", "flow", "model"},
		"rows": []any{
			row(2, 30, 4, "caller", "anna", "flow", "x", "model", "gpt-4o"), row(1, 20, 3, "caller", other, "flow", "x", "model", "gpt-4o"),
			row(1, 10, 2, "flow", "y", "model", "o/3"), above,
		},
		"total": row(5, 61, 10),
	}
	must.Equal(t, cmp.Diff(want, a.json), "", "(-want +answered)")
	for query, total := range map[string]map[string]any{
		"&caller=anna": row(2, 30, 4), "&caller=": row(1, 10, 2), "&caller=" + other: row(1, 20, 3), "&flow=x": row(3, 50, 7), "&model=o%2F3": row(1, 10, 2),
		"&flow=nosuch": row(0, 0, 0), "&group=g": row(0, 0, 0),
	} {
		a := api.as("read", "GET", path+"?from=2026-01-02&to=2026-01-02"+query, "").want(200, "")
		must.Equal(t, cmp.Diff(any(total), a.json["total"]), "", "%s: (-want +answered)", query)
	}

	// Without days: the last seven.
	today := time.Now().UTC()
	a = api.as("admin", "GET", path, "").want(200, "")
	if diff := cmp.Diff([]any{}, a.json["rows"]); diff != "" || a.json["from"].(string) < today.AddDate(0, 0, -7).Format(time.DateOnly) {
		t.Errorf("without days: %s", a.text)
	}

	for _, query := range []string{"?from=yesterday", "?to=2026-02-30", "?to=2026-01-01T00:00:00Z", "?from=2026-01-02&to=2026-01-01", "?from=2026-01-01&to=2026-02-01", "?by=week", "?by=day,,flow", "?days=7"} {
		api.as("read", "GET", path+query, "").want(400, "invalid")
	}
	api.as("read", "GET", "/v1/buckets/nosuch/usage", "").want(404, "unknown-bucket")
	api.as("enqueue", "GET", path, "").want(403, "forbidden")
	api.as("elsewhere", "GET", path, "").want(403, "forbidden")
	api.do("GET", path, "").want(401, "unauthorized")
	api.as("read", http.MethodPost, path, "").want(405, "")

	// New keys name other callers.
	keys[0].Caller = "other"
	handler.SetKeys(keys)
	a = api.as("read", "GET", path+"?from=2026-01-02&to=2026-01-02&by=caller", "").want(200, "")
	rows, _ := a.json["rows"].([]any)
	must.Equal(t, cmp.Diff([]any{row(2, 30, 4, "caller", shaper.CallerMark("anna")), row(1, 20, 3, "caller", "other")}, rows[:2]), "", "(-want +answered)")
}
