package httpapi_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

func TestDecodeJob(t *testing.T) {
	t.Parallel()
	got, err := httpapi.DecodeJob([]byte(` { "id":"a", "flow":"acme", "url":"https://example.com/", "method":"PUT",
		"headers":{"X-A":"1","X-B":["b","c"]}, "payload" :  {"n": 1.0,  "big": 12345678901234567890} , "cost":3, "delay":"1m30s", "max_attempts":8 } `))
	must.OK(t, err)
	want := shaper.Job{
		ID: "a", Flow: "acme", URL: "https://example.com/", Method: "PUT", Headers: map[string][]string{"X-A": {"1"}, "X-B": {"b", "c"}},
		Payload: []byte(`{"n": 1.0,  "big": 12345678901234567890}`), Cost: 3, Delay: 90 * time.Second, MaxAttempts: 8,
	}
	must.Equal(t, cmp.Diff(want, got), "", "decodeJob (-want +got):")
	got, err = httpapi.DecodeJob([]byte(`{"payload":"","not_before":"2030-01-02T03:04:05+06:00","id":null,"headers":null,"cost":null,"delay":null}`))
	want = shaper.Job{Payload: []byte(`""`), NotBefore: time.Date(2030, 1, 1, 21, 4, 5, 0, time.UTC)}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("decodeJob: %v (-want +got):\n%s", err, diff)
	}
}

func TestDecodeHeaders(t *testing.T) {
	t.Parallel()
	for headers, want := range map[string]string{
		`{"X-A":[]}`:               "headers.X-A: is an empty list: give a string or a list of strings, or leave it out",
		`{"X-A":["a",null]}`:       "headers.X-A: has a null: want strings",
		`{"X-A":["a",1]}`:          "headers.X-A: want a string",
		`{"X-A":["a"],"X-A":"b"}`:  "headers.X-A: is given twice",
		`[]`:                       "headers: want an object of names and strings",
		`{"X-A":["\ud800"]}`:       "headers.X-A: has half of a surrogate pair",
		`{"X-A":["a","b"],"B":""}`: "",
		`{"X-A":[` + strings.Repeat(`"",`, 64) + `""]}`: "headers: more than 64 of them: at most 64 are taken",
	} {
		_, err := httpapi.DecodeJob([]byte(`{"payload":1,"headers":` + headers + `}`))
		if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %q", headers, err, want)
		}
	}
}

// FuzzDecodeJob holds the decoder to what it promises of any input: what it
// takes is JSON, has a payload that stands in the input byte for byte, and no
// field that encoding/json would read otherwise.
func FuzzDecodeJob(f *testing.F) {
	for _, seed := range []string{
		"", "null", "[]", `"`, `{"payload":1}`, `{"payload":1,"payload":2}`, `{"payload":[{"a":"\ud800"}]}`,
		`{"payload":{},"headers":{"A":"b","A":"c"},"cost":1e3}`, `{"payload":1,"headers":{"A":["b","c"],"B":[],"C":["",null]}}`, `{"id":"a","flow":"\u0000","payload":" "}`,
		`{"payload":1,"delay":"-5m","not_before":"2030-01-01T00:00:00Z","max_attempts":99999999999999999999}`,
		`{"url":"http://[::1]","method":"GET","payload":null}`, `{"priority":1,"expires_in":"1h","Payload":1}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		job, err := httpapi.DecodeJob(data)
		if err != nil {
			return
		}
		if !json.Valid(data) {
			t.Fatalf("%q is a job", data)
		}
		if bytes.Contains(data, []byte(`"body`)) { // text that JSON may spell in other ways
			return
		}
		if len(job.Payload) > 0 && (!json.Valid(job.Payload) || !bytes.Contains(data, job.Payload)) {
			t.Fatalf("%q: payload %q", data, job.Payload)
		}
		var plain struct {
			ID, Flow, URL, Method string
			Headers               map[string]any
			Cost                  int64
		}
		if err := json.Unmarshal(data, &plain); err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		if plain.ID != job.ID || plain.Flow != job.Flow || plain.URL != job.URL || plain.Method != job.Method ||
			plain.Cost != job.Cost || !maps.EqualFunc(plain.Headers, job.Headers, sameHeader) {
			t.Fatalf("%q: %+v, plainly %+v", data, job, plain)
		}
	})
}

// sameHeader reports whether the values of a header are those that encoding/json reads.
func sameHeader(plain any, values []string) bool {
	list, isList := plain.([]any)
	if !isList {
		list = []any{plain}
	}
	return slices.EqualFunc(list, values, func(plain any, value string) bool { return plain == value })
}
