package workers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

// batchOf is a batch of jobs with these ids, each with its id as payload.
func batchOf(ids ...string) *shaper.Batch {
	batch := &shaper.Batch{ID: "batch_1"}
	for i, id := range ids {
		a := shaper.NewAttempt(time.Now(), time.Hour, nil)
		a.ID, a.Number, a.Payload = id, i+1, fmt.Appendf(nil, `{"of":%q}`, id)
		batch.Attempts = append(batch.Attempts, a)
	}
	return batch
}

func TestItemsOfABatch(t *testing.T) {
	t.Parallel()
	text := map[string][]string{"content-type": {"text/plain"}}
	for _, c := range []struct {
		name            string
		headers         map[string][]string
		payloads        []string
		array, nd, kind string
	}{
		{
			name: "JSON stays as it is", payloads: []string{"{\"a\": 1.00,\n \"<\":\"é\\n\"}", "7"},
			array: "[{\"id\":\"j1\",\"attempt\":1,\"data\":{\"a\": 1.00,\n \"<\":\"é\\n\"}},{\"id\":\"j2\",\"attempt\":2,\"data\":7}]",
			nd:    "{\"id\":\"j1\",\"attempt\":1,\"data\":{\"a\": 1.00,  \"<\":\"é\\n\"}}\n{\"id\":\"j2\",\"attempt\":2,\"data\":7}\n",
		},
		{
			name: "text", headers: text, payloads: []string{"7", "a\nb"},
			array: `[{"id":"j1","attempt":1,"data":"7"},{"id":"j2","attempt":2,"data":"a\nb"}]`,
			nd:    "{\"id\":\"j1\",\"attempt\":1,\"data\":\"7\"}\n{\"id\":\"j2\",\"attempt\":2,\"data\":\"a\\nb\"}\n",
		},
		{
			name: "no JSON though it says so, bytes, and nothing", payloads: []string{"{", "\xff\x00", ""},
			array: `[{"id":"j1","attempt":1,"data":"{"},{"id":"j2","attempt":2,"data_base64":"/wA="},{"id":"j3","attempt":3}]`,
			nd:    "{\"id\":\"j1\",\"attempt\":1,\"data\":\"{\"}\n{\"id\":\"j2\",\"attempt\":2,\"data_base64\":\"/wA=\"}\n{\"id\":\"j3\",\"attempt\":3}\n",
		},
		{
			name: "traces", headers: map[string][]string{"Traceparent": {"00-a-b-01"}, "tracestate": {"x=y"}, "X-Kind": {"k"}}, payloads: []string{"1"},
			array: `[{"id":"j1","attempt":1,"traceparent":"00-a-b-01","tracestate":"x=y","data":1}]`,
			nd:    "{\"id\":\"j1\",\"attempt\":1,\"traceparent\":\"00-a-b-01\",\"tracestate\":\"x=y\",\"data\":1}\n",
			kind:  "k",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var ids []string
			for i := range c.payloads {
				ids = append(ids, fmt.Sprint("j", i+1))
			}
			for format, want := range map[BatchFormat][2]string{BatchArray: {c.array, "application/json"}, "": {c.array, "application/json"}, BatchNDJSON: {c.nd, "application/x-ndjson"}} {
				batch := batchOf(ids...)
				for i, payload := range c.payloads {
					batch.Attempts[i].Payload, batch.Attempts[i].Headers = []byte(payload), c.headers
				}
				whole := format.Attempt(batch)
				h := http.Header(whole.Headers)
				if string(whole.Payload) != want[0] || h.Get("Content-Type") != want[1] || whole.ID != "batch_1" {
					t.Errorf("format %q: %s\n%v %s, want\n%s %s", format, whole.Payload, h, whole.ID, want[0], want[1])
				}
				if h.Get("X-Kind") != c.kind || h.Get("Traceparent")+h.Get("Tracestate") != "" || len(whole.Headers["content-type"]) > 0 {
					t.Errorf("format %q: headers %v", format, h)
				}
				if c.headers != nil && len(batch.Attempts[0].Headers) != len(c.headers) {
					t.Errorf("the headers of the job became %v", batch.Attempts[0].Headers)
				}
			}
		})
	}
}

// answered is the outcome of a request with that answer.
func answered(policy Policy, status int, contentType, body string) shaper.Outcome {
	outcome := policy.Judge(&Response{Status: status, Header: http.Header{}, At: time.Now(), OfBatch: true})
	outcome.Answer = &shaper.Answer{Status: status, Headers: http.Header{"Content-Type": {contentType}}, Body: []byte(body)}
	return outcome
}

func TestOutcomesOfABatch(t *testing.T) {
	t.Parallel()
	const isJSON = "application/json; charset=utf-8"
	policy := Policy{Statuses: []string{"429", "5xx"}, Hold: true}
	for _, c := range []struct {
		name, kind, body string
		status           int
		want             string // result and reason of each job
		signal           shaper.Signal
		fault            string
	}{
		{name: "for all, done", status: 204, want: "done done done", signal: shaper.SignalAccepted},
		{name: "for all, text", status: 200, kind: "text/plain", body: "ok {", want: "done done done", signal: shaper.SignalAccepted},
		{name: "for all, other JSON", status: 200, kind: isJSON, body: ` {"ok":true}`, want: "done done done", signal: shaper.SignalAccepted},
		{name: "for all, a list", status: 200, kind: isJSON, body: `[{"id":"a","status":500}]`, want: "done done done", signal: shaper.SignalAccepted},
		{name: "for all, results of a failure", status: 500, kind: isJSON, body: `{"results":[{"id":"a","status":200}]}`, want: "retry/http_500 retry/http_500 retry/http_500", signal: shaper.SignalFailed},
		{name: "for all, throttled", status: 429, want: "retry/http_429 retry/http_429 retry/http_429", signal: shaper.SignalThrottled},
		{
			name: "each", status: 200, kind: isJSON, body: `{"results":[{"id":"c","status":503},{"id":"a","status":201},{"id":"b","status":422}]}`,
			want: "done dead/http_422 retry/http_503", signal: shaper.SignalAccepted,
		},
		{
			name: "each, without a type", status: 200, body: `{"results":[{"id":"c","status":200},{"id":"a","status":200},{"id":"b","status":410}]}`,
			want: "done dead/gone done", signal: shaper.SignalAccepted,
		},
		{
			name: "not named", status: 200, kind: isJSON, body: `{"results":[{"id":"b","status":200}]}`,
			want: "retry/batch_answer done retry/batch_answer", signal: shaper.SignalAccepted,
		},
		{name: "none named", status: 207, kind: isJSON, body: `{"results":[]}`, want: "retry/batch_answer retry/batch_answer retry/batch_answer", signal: shaper.SignalAccepted},
		{
			name: "a foreign one", status: 200, kind: isJSON, body: `{"results":[{"id":"a","status":200},{"id":"x","status":200},{"id":"b","status":200},{"id":"c","status":200}]}`,
			want: "done done done", signal: shaper.SignalAccepted, fault: `item 2 of the results in the answer to the batch names job "x"`,
		},
		{
			name: "twice", status: 200, kind: isJSON, body: `{"results":[{"id":"a","status":200},{"id":"b","status":200},{"id":"c","status":200},{"id":"a","status":500}]}`,
			want: "retry/batch_answer done done", signal: shaper.SignalAccepted, fault: `names job "a" twice, as items 1 and 4`,
		},
		{
			name: "no status", status: 200, kind: isJSON, body: `{"results":[{"id":"a"},{"id":"b","status":200},{"id":"c","status":99}]}`,
			want: "retry/batch_answer done retry/batch_answer", signal: shaper.SignalAccepted, fault: `item 1 of the results in the answer to the batch has status 0 for job "a"`,
		},
		{
			name: "no items", status: 200, kind: isJSON, body: `{"results":[1,{"status":200},{"id":"b","status":"200"},{"id":"c","status":200}]}`,
			want: "retry/batch_answer retry/batch_answer done", signal: shaper.SignalAccepted, fault: `item 1 of the results in the answer to the batch has no id and status`,
		},
		{
			name: "not a list", status: 200, kind: isJSON, body: `{"results":{"a":200}}`,
			want: "retry/batch_answer retry/batch_answer retry/batch_answer", signal: shaper.SignalAccepted, fault: `"results" that are no array`,
		},
		{
			name: "cut", status: 200, kind: isJSON, body: `{"results":[{"id":"a","sta`,
			want: "retry/batch_answer retry/batch_answer retry/batch_answer", signal: shaper.SignalAccepted, fault: `cannot be read`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			batch := batchOf("a", "b", "c")
			batch.Attempts[1].AnswerBytes = 12
			outcomes := policy.Outcomes(batch, answered(policy, c.status, c.kind, c.body), time.Now())
			var got []string
			for i, o := range outcomes {
				got = append(got, strings.TrimSuffix(o.Result.String()+"/"+o.Reason, "/"))
				if o.Signal != c.signal || o.Gone {
					t.Errorf("job %d: signal %d, want %d; gone %v", i, o.Signal, c.signal, o.Gone)
				}
				if o.Result != shaper.ResultDone && o.Detail == "" {
					t.Errorf("job %d has no detail: %+v", i, o)
				}
				if wants := i == 1; (o.Answer != nil) != wants || wants && len(o.Answer.Body) > 12 {
					t.Errorf("job %d gets the answer %+v", i, o.Answer)
				}
			}
			must.Equal(t, strings.Join(got, " "), c.want, "the outcomes are %q", got)
			if fault := fmt.Sprint(batch.Fault); batch.Fault == nil && c.fault != "" || batch.Fault != nil && (c.fault == "" || !strings.Contains(fault, c.fault)) {
				t.Errorf("the fault is %q, want %q", fault, c.fault)
			}
		})
	}
}

// Whatever a receiver answers: each job has an outcome, only those that an item names are not tried again, and errors are short.
func FuzzOutcomesOfABatch(f *testing.F) {
	for _, seed := range []string{`{"results":[{"id":"a","status":200}]}`, `{"results":[{"id":"a","status":500},{"id":"a","status":200},{"id":"x"}]}`, `{`, `[]`, `{"results":null}`, `{"results":[null,{}]}`} {
		f.Add(200, "application/json", []byte(seed))
	}
	f.Fuzz(func(t *testing.T, status int, kind string, body []byte) {
		if status < 100 || status > 999 {
			return
		}
		policy := DefaultPolicy()
		batch := batchOf("a", "b")
		request := answered(policy, status, kind, string(body))
		outcomes := policy.Outcomes(batch, request, time.Now())
		must.Be(t, len(outcomes), 2, "outcomes")
		hasResults := bytes.Contains(bytes.ToLower(body), []byte(`results`)) || bytes.Contains(body, []byte(`\u`))
		for i, o := range outcomes {
			if o.Result < shaper.ResultDone || o.Result > shaper.ResultHeld {
				t.Fatalf("job %d: result %d", i, o.Result)
			}
			if len(o.Detail) > MaxSnippet {
				t.Fatalf("job %d: %d bytes of detail", i, len(o.Detail))
			}
			if !hasResults && json.Valid(body) && o.Result != request.Result {
				t.Fatalf("job %d is %s, the request %s", i, o.Result, request.Result)
			}
		}
		if batch.Fault != nil && len(batch.Fault.Error()) > 4*MaxSnippet {
			t.Fatalf("%d bytes of a fault", len(batch.Fault.Error()))
		}
	})
}
