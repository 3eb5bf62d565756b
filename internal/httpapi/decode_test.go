package httpapi_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/shaper"
)

func TestDecodeJob(t *testing.T) {
	t.Parallel()
	got, err := httpapi.DecodeJob([]byte(` { "id":"a", "flow":"acme", "url":"https://example.com/", "method":"PUT",
		"headers":{"X-A":"1"}, "payload" :  {"n": 1.0,  "big": 12345678901234567890} , "cost":3, "delay":"1m30s", "max_attempts":8 } `))
	if err != nil {
		t.Fatal(err)
	}
	want := shaper.Job{
		ID: "a", Flow: "acme", URL: "https://example.com/", Method: "PUT", Headers: map[string]string{"X-A": "1"},
		Payload: []byte(`{"n": 1.0,  "big": 12345678901234567890}`), Cost: 3, Delay: 90 * time.Second, MaxAttempts: 8,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("decodeJob (-want +got):\n%s", diff)
	}
	got, err = httpapi.DecodeJob([]byte(`{"payload":"","not_before":"2030-01-02T03:04:05+06:00","id":null,"headers":null,"cost":null,"delay":null}`))
	want = shaper.Job{Payload: []byte(`""`), NotBefore: time.Date(2030, 1, 1, 21, 4, 5, 0, time.UTC)}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("decodeJob: %v (-want +got):\n%s", err, diff)
	}
}

// FuzzDecodeJob holds the decoder to what it promises of any input: what it
// takes is JSON, has a payload that stands in the input byte for byte, and no
// field that encoding/json would read otherwise.
func FuzzDecodeJob(f *testing.F) {
	for _, seed := range []string{
		"", "null", "[]", `"`, `{"payload":1}`, `{"payload":1,"payload":2}`, `{"payload":[{"a":"\ud800"}]}`,
		`{"payload":{},"headers":{"A":"b","A":"c"},"cost":1e3}`, `{"id":"a","flow":"\u0000","payload":" "}`,
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
		if !json.Valid(data) || !json.Valid(job.Payload) || !bytes.Contains(data, job.Payload) {
			t.Fatalf("%q: payload %q", data, job.Payload)
		}
		var plain struct {
			ID, Flow, URL, Method string
			Headers               map[string]string
			Cost                  int64
		}
		if err := json.Unmarshal(data, &plain); err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		if plain.ID != job.ID || plain.Flow != job.Flow || plain.URL != job.URL || plain.Method != job.Method ||
			plain.Cost != job.Cost || !maps.Equal(plain.Headers, job.Headers) {
			t.Fatalf("%q: %+v, plainly %+v", data, job, plain)
		}
	})
}
