package httpapi_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/tundish-io/tundish/internal/must"
)

func TestEnqueue(t *testing.T) {
	t.Parallel()
	api, _ := producerAPI(t)

	a := api.do("POST", jobs, `{"id":"first","flow":"acme","payload":{ "n": 1.0, "s": "<é>" },"url":"https://example.com/","method":"PUT","headers":{"Authorization":"Bearer s3cret"}}`).want(202, "")
	a.wantHeader("Location", jobs+"/first")
	a.wantHeader("Content-Type", "application/json")
	a.wantHeader("Cache-Control", "no-store")
	a.has("id", "first")
	a.has("bucket", "roomy")
	a.has("flow", "acme")
	a.has("state", "queued")
	a.has("position", float64(0))
	if _, err := time.Parse(time.RFC3339, a.json["eta"].(string)); err != nil {
		t.Error(err)
	}
	a.lacks("duplicate")
	if a.header.Get("RateLimit") != "" || a.header.Get("X-RateLimit-Limit") != "" {
		t.Error("a bucket without limits has headers of limits")
	}

	a = api.do("POST", jobs, job("")).want(202, "")
	a.has("position", float64(1))
	api.do("GET", a.header.Get("Location"), "").want(200, "").has("state", "queued")

	a = api.do("GET", jobs+"/first", "").want(200, "")
	a.has("method", "PUT")
	a.has("attempts", float64(0))
	a.has("position", float64(0))
	if !strings.Contains(a.text, `"payload":{"n":1.0,"s":"<é>"}`) || strings.Contains(a.text, "s3cret") {
		t.Errorf("want the payload and no header in %s", a.text)
	}

	a = api.do("DELETE", jobs+"/first", "").want(200, "")
	a.has("state", "cancelled")
	api.do("DELETE", jobs+"/first", "").want(200, "")
	a = api.do("GET", jobs+"/first", "").want(200, "")
	a.has("state", "cancelled")
	a.lacks("attempts", "position", "eta", "payload")
}

func TestEnqueueForLater(t *testing.T) {
	t.Parallel()
	api, _ := producerAPI(t)
	a := api.do("POST", jobs, job(`"id":"later","delay":"1h"`)).want(202, "")
	a.has("state", "scheduled")
	a.lacks("position")
	eta, err := time.Parse(time.RFC3339, a.json["eta"].(string))
	if wait := time.Until(eta); err != nil || wait < 59*time.Minute || wait > time.Hour {
		t.Errorf("eta %v, %v: want it in an hour", eta, err)
	}
	then := time.Now().AddDate(9, 0, 0).UTC().Truncate(time.Second)
	east := then.In(time.FixedZone("", 3600)).Format(time.RFC3339)
	api.do("POST", jobs, job(`"id":"then","not_before":"`+east+`"`)).want(202, "").has("eta", then.Format(time.RFC3339))
	a = api.do("GET", jobs+"/then", "").want(200, "")
	a.has("state", "scheduled")
	a.has("eta", then.Format(time.RFC3339))
	a.has("why", "its time has not come")
}

func TestSameIDSameJob(t *testing.T) {
	t.Parallel()
	api, _ := producerAPI(t)
	api.do("POST", jobs, job(""), "Idempotency-Key", `"once"`).want(202, "").has("id", "once")
	for name, a := range map[string]*answer{
		"quoted":    api.do("POST", jobs, job(""), "Idempotency-Key", `"once"`),
		"bare":      api.do("POST", jobs, job(""), "Idempotency-Key", `once`),
		"as the id": api.do("POST", jobs, job(`"id":"once"`)),
		"both":      api.do("POST", jobs, job(`"id":"once"`), "Idempotency-Key", `"once"`),
	} {
		t.Log(name)
		a.want(202, "").has("duplicate", true)
		a.has("id", "once")
		a.lacks("position", "eta")
	}
	a := api.do("POST", jobs, `{"payload":2,"url":"https://example.com/","id":"once"}`).want(422, "id-reused")
	a.has("type", "https://tundish.io/problems/id-reused")
	a.wantHeader("Retry-After", "")
}

// The id of a cancelled job is answered 409 with its state, alone and in a batch.
func TestIDOfACancelledJob(t *testing.T) {
	t.Parallel()
	api, _ := producerAPI(t)
	api.do("POST", jobs, job(`"id":"gone"`)).want(202, "")
	api.do("DELETE", jobs+"/gone", "").want(200, "")
	a := api.do("POST", jobs, job(`"id":"gone"`)).want(409, "id-ended")
	a.has("type", "https://tundish.io/problems/id-ended")
	a.has("state", "cancelled")
	a.wantHeader("Retry-After", "")
	a = api.do("POST", jobs+"/batch", "["+job(`"id":"gone"`)+","+job(`"id":"new"`)+"]").want(200, "")
	must.Equal(t, a.statuses(), "409 202", "statuses")
	for i, want := range []string{"cancelled", "queued"} {
		must.Equal[any](t, a.json["results"].([]any)[i].(map[string]any)["state"], want, "result %d has state", i)
	}
}

// limitsOf parses a list of limits, strictly.
func limitsOf(t *testing.T, text string) map[string]map[string]int64 {
	t.Helper()
	list, err := httpsfv.UnmarshalList([]string{text})
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	limits := map[string]map[string]int64{}
	for _, member := range list {
		item := member.(httpsfv.Item)
		params := map[string]int64{}
		for _, name := range item.Params.Names() {
			value, _ := item.Params.Get(name)
			params[name] = value.(int64)
		}
		limits[item.Value.(string)] = params
	}
	return limits
}

func TestLimits(t *testing.T) {
	t.Parallel()
	api, _ := producerAPI(t)
	const path = "/v1/buckets/limited/jobs"
	var a *answer
	for left := 2; left >= 0; left-- {
		a = api.do("POST", path, job("")).want(202, "")
		a.wantHeader("X-RateLimit-Limit", "3")
		a.wantHeader("X-RateLimit-Remaining", strconv.Itoa(left))
		a.wantHeader("Retry-After", "")
		if got := limitsOf(t, a.header.Get("RateLimit"))["per-caller"]["r"]; got != int64(left) {
			t.Errorf("RateLimit: %s, want %d left", a.header.Get("RateLimit"), left)
		}
	}
	a = api.do("POST", path, job("")).want(429, "limit-exceeded")
	a.has("type", "https://iana.org/assignments/http-problem-types#quota-exceeded")
	if list := a.json["violated-policies"].([]any); len(list) != 1 || list[0] != "per-caller" {
		t.Errorf("violated-policies: %v", list)
	}
	// 4 an hour: the next token is at most 900 s away, and was spent just now.
	after, err := strconv.ParseInt(a.header.Get("Retry-After"), 10, 64)
	if err != nil || after < 880 || after > 900 {
		t.Errorf("Retry-After: %q", a.header.Get("Retry-After"))
	}
	a.has("retry_after", float64(after))
	for range 2 { // the second answer is from memory
		a.has("detail", fmt.Sprintf(`limit "per-caller" exceeded (4/h): retry in %s`, time.Duration(a.json["retry_after"].(float64))*time.Second))
		a = api.do("POST", path, job("")).want(429, "limit-exceeded")
	}
	policy, state := limitsOf(t, a.header.Get("RateLimit-Policy")), limitsOf(t, a.header.Get("RateLimit"))
	if p := policy["per-caller"]; p["q"] != 3 || p["w"] != 2700 {
		t.Errorf("RateLimit-Policy: %s", a.header.Get("RateLimit-Policy"))
	}
	if p := policy["everybody"]; p["q"] != 100 || p["w"] != 60 {
		t.Errorf("RateLimit-Policy: %s", a.header.Get("RateLimit-Policy"))
	}
	if s := state["per-caller"]; s["r"] != 0 || s["t"] != after {
		t.Errorf("RateLimit: %s", a.header.Get("RateLimit"))
	}
	reset, err := strconv.ParseInt(a.header.Get("X-RateLimit-Reset"), 10, 64)
	if wait := time.Until(time.Unix(reset, 0)); err != nil || wait < 870*time.Second || wait > 902*time.Second {
		t.Errorf("X-RateLimit-Reset: %q", a.header.Get("X-RateLimit-Reset"))
	}

	a = api.do("POST", path, job(`"cost":4`)).want(422, "cost-impossible")
	a.has("detail", `cost 4 is above limit "per-caller" (at most 3 at once): lower the cost or raise the limit`)
	a.wantHeader("Retry-After", "")
	a.lacks("retry_after")
}

func TestFull(t *testing.T) {
	t.Parallel()
	api, _ := producerAPI(t)
	const path = "/v1/buckets/small/jobs"
	api.do("POST", path, job("")).want(202, "")
	a := api.do("POST", path, job("")).want(429, "bucket-full")
	if after, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || after < 1 {
		t.Errorf("Retry-After: %q", a.header.Get("Retry-After"))
	}
	api.do("POST", path, job(`"delay":"1h"`)).want(202, "")
	a = api.do("POST", path, job(`"delay":"1h"`)).want(429, "scheduled-full")
	a.has("type", "https://tundish.io/problems/scheduled-full")
}
