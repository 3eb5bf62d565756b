package httpapi_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

// visible are ids as clients have them: of CloudEvents, of URNs, in base64, and with each visible character.
var visible = []string{
	"partition:1/offset:24", "urn:uuid:6e8bc430-9c3a-11d9-9669-0800200c9a66", "a.b.c", "dGVzdA+/==", "order#17;v=2", `"\'{}[]`, "100%", "a%2Fb", "~!@$^&*(),<>?|`", "//",
	"...", strings.Repeat("x", shaper.MaxIDBytes),
}

// A job of any visible id is looked at, found, cancelled and enqueued again by its path.
func TestVisibleIDs(t *testing.T) {
	t.Parallel()
	api, store := producerAPI(t)
	var batch []string
	for _, id := range visible {
		quoted, _ := json.Marshal(id)
		body := job(`"id":` + string(quoted))
		a := api.do("POST", jobs, body).want(202, "")
		a.has("id", id)
		a.wantHeader("Location", jobs+"/"+url.PathEscape(id))
		api.do("GET", a.header.Get("Location"), "").want(200, "").has("id", id)
		api.do("POST", jobs, body).want(202, "").has("duplicate", true)
		batch = append(batch, body)
	}
	api.do("POST", jobs+"/batch", "["+strings.Join(batch, ",")+"]").want(200, "").has("admitted", float64(len(visible)))
	must.Equal(t, depth(t, store), int64(len(visible)), "jobs, want %d", len(visible))
	for _, id := range visible {
		path := jobs + "/" + url.PathEscape(id)
		api.do("DELETE", path, "").want(200, "").has("state", "cancelled")
		api.do("GET", path+"/result", "").want(404, "no-result")
	}
	for _, id := range []string{".", "..", "a b", "ü", "a\tb", strings.Repeat("x", shaper.MaxIDBytes+1)} {
		quoted, _ := json.Marshal(id)
		api.do("POST", jobs, job(`"id":`+string(quoted))).want(400, "invalid")
	}
}

// An Idempotency-Key is any text to 255 characters. Where it cannot be an id, the job has an id that is made of it.
func TestIdempotencyKeysAreAnyText(t *testing.T) {
	t.Parallel()
	api, _ := producerAPI(t)
	for _, key := range visible {
		a := api.do("POST", jobs, job(""), "Idempotency-Key", strings.TrimPrefix(key, `"`)).want(202, "")
		a.has("id", strings.TrimPrefix(key, `"`))
	}
	quoted := api.do("POST", jobs, job(""), "Idempotency-Key", `"say \"a b\""`).want(202, "")
	for _, key := range []string{`"say \"a b\""`, `say "a b"`} {
		again := api.do("POST", jobs, job(""), "Idempotency-Key", key).want(202, "")
		again.has("id", quoted.json["id"])
		again.has("duplicate", true)
	}
	api.do("POST", jobs, job(""), "Idempotency-Key", "say a b").want(202, "").has("duplicate", nil)
	if id, _ := quoted.json["id"].(string); !strings.HasPrefix(id, shaper.KeyID) {
		t.Errorf("the id is %q", id)
	}
	for _, key := range []string{"", strings.Repeat("x", shaper.MaxIDBytes+1), "ü", "schedule-x"} {
		if key != "" {
			api.do("POST", jobs, job(""), "Idempotency-Key", key).want(400, "invalid")
		}
	}
}

// With API keys a job has an id of its own, whatever its caller's key is.
func TestIdempotencyKeysOfCallersAreAnyText(t *testing.T) {
	t.Parallel()
	api, _ := tenants(t)
	const body = `{"flow":"f","payload":{}}`
	for _, key := range []string{"partition:1/offset:24", "urn:uuid:6e8bc430", ".", strings.Repeat("=", 255), `"a b"`} {
		first := api.as("a", "POST", slowJobs, body, "Idempotency-Key", key).want(202, "")
		api.as("a", "POST", slowJobs, body, "Idempotency-Key", key).want(202, "").has("duplicate", true)
		if other := api.as("b", "POST", slowJobs, body, "Idempotency-Key", key).want(202, ""); other.json["id"] == first.json["id"] {
			t.Errorf("%s: two callers have one job", key)
		}
	}
}
