package httpapi_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

const ndjson = "application/x-ndjson"

// putLines puts flows, one a line.
func (s *server) putLines(bucket, lines string) *answer {
	s.t.Helper()
	return s.do("PUT", "/v1/buckets/"+bucket+"/flows", lines, "Content-Type", ndjson)
}

// All lines are checked before the first is written: a fault names its line, and nothing is changed.
func TestAFaultyLineOfFlowsChangesNothing(t *testing.T) {
	t.Parallel()
	ops := flowStation(t)
	const good = `{"flow":"new","rate":"5/s"}` + "\n"
	for _, c := range []struct{ lines, field, reason string }{
		{good + "\n" + `{"flow":"b","url":"ftp://x"}`, "line 3: url", "want an absolute http or https URL"},
		{good + `{"flow":"b","weight":0}`, "line 2: weight", "0: want 1 to 1000"},
		{good + `{"rate":"5/s"}`, "line 2: flow", "is missing"},
		{good + `{"flow":"b"`, "line 2: body", "is not JSON"},
		{good + `["b"]`, "line 2: body", "want a JSON object"},
		{good + `{"flow":"b","group":"g"}`, "", "has no groups"},
		{good + `{"flow":"b","colour":"red"}`, "line 2: colour", "is no setting of a flow"},
		{good + `{"flow":"b","add_secrets":["x"]}`, "line 2: add_secrets", "is not taken for many flows"},
		{good + `{"flow":"b","rate":"1/d","burst":1000000}`, "line 2: burst", "it takes more than"},
		{good + `{"flow":"new"}`, "line 2: flow", "is named twice"},
		{good + `{"flow":"` + strings.Repeat("x", 257) + `"}`, "line 2: flow", "at most 256 bytes"},
		{"\n\n", "body", "has no lines"},
	} {
		a := ops.putLines("flowing", c.lines)
		if c.field == "" {
			a.want(409, "no-groups")
		} else if wantField(t, a, c.field); !strings.Contains(a.text, c.reason) {
			t.Errorf("%s: %s, want %q", c.lines, a.text, c.reason)
		}
		ops.do("GET", "/v1/buckets/flowing/flow?flow=new", "").want(200, "").has("unknown", true)
	}
	ops.do("PUT", "/v1/buckets/flowing/flows", good).want(415, "unsupported-media-type")
	ops.putLines("plain", good).want(409, "no-flows")
	ops.putLines("nobody", good).want(404, "unknown-bucket")
}

// 2,000 customers get their URLs and secrets in one call, which may be sent twice. Secrets stay where a line names none, a pause stays, and other
// settings go.
func TestManyFlowsInOneCall(t *testing.T) {
	t.Parallel()
	ops := flowStation(t)
	lines := func(more string) string {
		var b strings.Builder
		for i := range 2000 {
			fmt.Fprintf(&b, `{"flow":"customer %d/é","url":"https://c%d.example/hook"%s}`+"\n", i, i, more)
		}
		return b.String()
	}
	const one = "/v1/buckets/flowing/flow?flow=customer+1999%2F%C3%A9"
	first := lines(`,"secrets":["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],"weight":2,"headers":{"X-A":"b"}`)
	for range 2 {
		a := ops.putLines("flowing", first).want(200, "")
		a.has("flows", float64(2000))
		a.lacks("more")
	}
	want := func(settings string) {
		t.Helper()
		must.Equal(t, fmt.Sprint(ops.do("GET", one, "").want(200, "").json["settings"]), settings, "settings")
	}
	want("map[headers:[X-A] secret_fingerprints:[96ad2ccd8146] secrets_count:1 url:https://c1999.example/*** weight:2]")
	ops.do("POST", strings.Replace(one, "?", "/pause?", 1), `{"reason":"r"}`).want(200, "")
	ops.putLines("flowing", lines(`,"rate":"5/s"`)).want(200, "")
	want("map[headers:[X-A] rate:5/s secret_fingerprints:[96ad2ccd8146] secrets_count:1 url:https://c1999.example/***]")
	if a := ops.do("GET", one, "").want(200, ""); a.json["pause"] == nil {
		t.Error("the pause is gone")
	}
	ops.putLines("flowing", lines(`,"secrets":null,"headers":null`)).want(200, "")
	want("map[url:https://c1999.example/***]")
}
