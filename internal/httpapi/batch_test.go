package httpapi_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// statuses are those of the results, in order.
func (a *answer) statuses() string {
	a.t.Helper()
	list, ok := a.json["results"].([]any)
	if !ok {
		a.t.Fatalf("no results in %s", a.text)
	}
	var statuses []string
	for _, item := range list {
		statuses = append(statuses, fmt.Sprint(item.(map[string]any)["status"]))
	}
	return strings.Join(statuses, " ")
}

func TestBatch(t *testing.T) {
	t.Parallel()
	api, store := producerAPI(t)
	lines := strings.Join([]string{
		job(`"id":"a"`), "", `{"broken`, job(`"id":"a"`), `{"payload":2,"url":"https://example.com/","id":"a"}`,
		`{"id":"bad","payload":null}`, `{"payload":"` + strings.Repeat("x", 1001) + `"}`, job(""),
	}, "\r\n")
	a := api.do("POST", jobs+"/batch", lines, "Content-Type", "application/x-ndjson").want(200, "")
	a.has("admitted", float64(3))
	a.has("refused", float64(4))
	if got, want := a.statuses(), "202 400 202 422 400 413 202"; got != want {
		t.Errorf("statuses %s, want %s", got, want)
	}
	results := a.json["results"].([]any)
	for i, want := range []string{"a", "<nil>", "a", "a", "bad"} {
		must.Equal(t, fmt.Sprint(results[i].(map[string]any)["id"]), want, "result %d has id", i)
	}
	if first := results[0].(map[string]any); first["state"] != "queued" || first["position"] != float64(0) || first["eta"] == nil {
		t.Errorf("first: %v", first)
	}
	if reused := results[3].(map[string]any); reused["code"] != "id-reused" || reused["detail"] == "" {
		t.Errorf("reused: %v", reused)
	}
	must.Equal(t, depth(t, store), 2, "jobs")
}

func TestBatchOfAThousand(t *testing.T) {
	t.Parallel()
	api, store := producerAPI(t)
	a := api.do("POST", jobs+"/batch", "["+strings.Repeat(job("")+",", 999)+job("")+"]").want(200, "")
	a.has("admitted", float64(1000))
	must.Equal(t, depth(t, store), 1000, "jobs")
}

func TestBatchRefused(t *testing.T) {
	t.Parallel()
	api, _ := producerAPI(t)
	const path = "/v1/buckets/limited/jobs/batch"
	four := "[" + strings.Repeat(job("")+",", 3) + job("") + "]"
	a := api.do("POST", path, four).want(200, "")
	if got := a.statuses(); got != "202 202 202 429" {
		t.Error(got)
	}
	a.wantHeader("Retry-After", "")
	a.wantHeader("X-RateLimit-Remaining", "0")
	if got := limitsOf(t, a.header.Get("RateLimit")); got["per-caller"]["r"] != 0 || got["everybody"]["r"] != 97 {
		t.Errorf("RateLimit: %s", a.header.Get("RateLimit"))
	}

	a = api.do("POST", path, four).want(429, "limit-exceeded")
	a.has("admitted", float64(0))
	a.has("refused", float64(4))
	if got := a.statuses(); got != "429 429 429 429" {
		t.Error(got)
	}
	if a.header.Get("Retry-After") == "" || a.json["violated-policies"] == nil {
		t.Errorf("Retry-After: %q in %s", a.header.Get("Retry-After"), a.text)
	}

	a = api.do("POST", path, "["+job("")+",7]").want(200, "")
	a.has("admitted", float64(0))
	if got := a.statuses(); got != "429 400" {
		t.Error(got)
	}
	a = api.do("POST", path, "[7,"+job(`"cost":4`)+"]").want(400, "invalid")
	if got := a.statuses(); got != "400 422" {
		t.Error(got)
	}
}
