package httpapi_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// answered is what an operation of these tests answers: what it was given.
type answered[In any] struct{ in *In }

func (answered[In]) MarshalJSON() ([]byte, error) { return []byte("{}"), nil }

// received is what arrives of the input of an operation, and the answer.
func received[In, Out any](t *rapid.T, op *httpapi.Operation[In, Out], in In) (got In) {
	target, body, err := op.Request(&in)
	must.OK(t, err)
	r := httptest.NewRequest(op.Method, "http://localhost"+target, strings.NewReader(string(body)))
	r.RemoteAddr = "127.0.0.1:1"
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	w := httptest.NewRecorder()
	echo := httpapi.Operation[In, answered[In]]{Method: op.Method, Path: op.Path, OptionalBody: op.OptionalBody, StrictQuery: op.StrictQuery}
	httpapi.ServeOperation(&echo, func(_ *http.Request, in *In) (answered[In], error) {
		got = *in
		return answered[In]{in}, nil
	}).ServeHTTP(w, r)
	must.Be(t, w.Code, http.StatusOK, "%s %s %s: %s", op.Method, target, body, w.Body)
	return got
}

// What a program gives to an operation is what the server reads of its request.
func TestOperationsArriveAsTheyWereGiven(t *testing.T) {
	t.Parallel()
	name := rapid.StringMatching(`[a-z0-9][a-z0-9_.-]{0,20}[a-z0-9]`)
	text := rapid.StringN(0, 20, -1)
	maybe := rapid.Ptr(text, true)
	instant := rapid.Custom(func(t *rapid.T) time.Time {
		if rapid.Bool().Draw(t, "none") {
			return time.Time{}
		}
		return time.UnixMicro(rapid.Int64Range(1, 4e15).Draw(t, "microseconds")).UTC()
	})
	bucket := rapid.Custom(func(t *rapid.T) httpapi.BucketName { return httpapi.BucketName{Bucket: name.Draw(t, "bucket")} })
	filter := rapid.Custom(func(t *rapid.T) operator.DeadFilter {
		return operator.DeadFilter{
			Cause: text.Draw(t, "cause"), Reason: text.Draw(t, "reason"), Flow: maybe.Draw(t, "flow"), Group: maybe.Draw(t, "group"),
			Status: rapid.SampledFrom([]int{0, 100, 404, 599}).Draw(t, "status"), Since: instant.Draw(t, "since"), Until: instant.Draw(t, "until"), Text: text.Draw(t, "q"),
		}
	})
	page := rapid.Custom(func(t *rapid.T) httpapi.Page {
		return httpapi.Page{Payload: rapid.Bool().Draw(t, "payload"), Limit: rapid.IntRange(0, 1000).Draw(t, "limit"), Cursor: text.Draw(t, "cursor")}
	})
	same := func(t *rapid.T, want, got any) {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("-given +received:\n%s", diff)
		}
	}
	for what, check := range map[string]func(t *rapid.T){
		"parameters of a list": func(t *rapid.T) {
			in := httpapi.DeadQuery{
				BucketName: bucket.Draw(t, "bucket"), DeadFilter: filter.Draw(t, "filter"), Page: page.Draw(t, "page"), Offset: rapid.Ptr(rapid.IntRange(0, 1e6), true).Draw(t, "offset"),
			}
			same(t, in, received(t, httpapi.ListDead, in))
		},
		"a type of words": func(t *rapid.T) {
			in := httpapi.JobQuery{BucketName: bucket.Draw(t, "bucket"), State: shaper.State(name.Draw(t, "state")), Flow: maybe.Draw(t, "flow"), Since: instant.Draw(t, "since")}
			same(t, in, received(t, httpapi.ListJobs, in))
		},
		"a body with an object": func(t *rapid.T) {
			in := httpapi.DeadRedrive{DeadChoice: httpapi.DeadChoice{
				BucketName: bucket.Draw(t, "bucket"), IDs: rapid.SliceOfN(name, 1, 200).Draw(t, "ids"), Filter: filter.Draw(t, "filter"), All: rapid.Bool().Draw(t, "all"),
				Cursor: text.Draw(t, "cursor"), DryRun: rapid.Bool().Draw(t, "dry run"), Confirm: text.Draw(t, "confirm"),
			}, Limit: rapid.IntRange(0, 1000).Draw(t, "limit")}
			same(t, in, received(t, httpapi.RedriveDead, in))
		},
		"a rate and a body that may be missing": func(t *rapid.T) {
			in := httpapi.BucketDrain{BucketName: bucket.Draw(t, "bucket"), Max: rapid.Int64Range(0, 1e8).Draw(t, "max"), UntilEmpty: rapid.Bool().Draw(t, "until empty")}
			if rapid.Bool().Draw(t, "with a rate") {
				in.Rate, _ = admission.ParseRate("5/s")
			}
			same(t, in, received(t, httpapi.DrainBucket, in))
		},
		"a list of parameters": func(t *rapid.T) {
			in := httpapi.BucketResets{BucketName: bucket.Draw(t, "bucket"), Settings: rapid.SliceOfN(name, 1, 5).Draw(t, "settings")}
			same(t, in, received(t, httpapi.ResetBucket, in))
		},
		"the name of a flow": func(t *rapid.T) {
			in := httpapi.PartPause[httpapi.FlowName]{
				Part:      httpapi.FlowName{BucketName: bucket.Draw(t, "bucket"), Flow: text.Draw(t, "flow"), Group: maybe.Draw(t, "group")},
				MayCreate: httpapi.MayCreate{Create: rapid.Bool().Draw(t, "create")}, PauseReason: httpapi.PauseReason{Reason: text.Draw(t, "reason")},
			}
			same(t, in, received(t, httpapi.FlowOperations.Pause, in))
		},
		"a body as it is": func(t *rapid.T) {
			body, _ := json.Marshal(map[string]string{text.Draw(t, "setting"): text.Draw(t, "value")})
			in := httpapi.BucketSettings{BucketName: bucket.Draw(t, "bucket"), Settings: body}
			same(t, in, received(t, httpapi.SetBucket, in))
		},
	} {
		t.Run(what, func(t *testing.T) { rapid.Check(t, check) }) // one after the other: they share generators
	}
}

// What is not as an operation takes it is a fault of its field, and the operation is not carried out.
func TestInputsOfOperationsAreStrict(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ query, body, field, reason string }{
		{"", `{"limit":"5"}`, "limit", "want 1 to 1000"},
		{"", `{"limit":0}`, "limit", "want 1 to 1000"},
		{"", `{"limit":1.5}`, "limit", "want 1 to 1000"},
		{"", `{"all":1}`, "all", "want true or false"},
		{"", `{"all":null}`, "all", "is null: leave it out"},
		{"", `{"all":true,"all":true}`, "all", "is given twice"},
		{"", `{"cursor":5}`, "cursor", "want a string"},
		{"", `{"ids":[]}`, "ids", "want a list of 1 to 200 ids"},
		{"", `{"ids":["` + strings.Repeat(`a","`, 200) + `a"]}`, "ids", "want a list of 1 to 200 ids"},
		{"", `{"ids":"a"}`, "ids", "want a list of 1 to 200 ids"},
		{"", `{"filter":5}`, "filter", "want an object"},
		{"", `{"filter":{"flows":"a"}}`, "flows", "is not taken here: want cause, reason, flow, group, status, since, until or q"},
		{"", `{"filter":{"since":"yesterday"}}`, "since", `want a time of RFC 3339 such as "2026-03-01T12:00:00Z"`},
		{"", `{"everything":true}`, "everything", "is not taken here: want ids, filter, all, cursor, dry_run, confirm or limit"},
		{"", `[]`, "body", "want a JSON object"},
		{"", ``, "body", "is empty: want JSON"},
	} {
		wantFault(t, httpapi.RedriveDead, "/v1/buckets/b/dead/redrive?"+test.query, test.body, test.field, test.reason)
	}
	for _, test := range []struct{ query, field, reason string }{
		{"limit=0", "limit", "want 1 to 1000"}, {"payload=yes", "payload", "want true or false"}, {"since=now", "since", `want a time of RFC 3339 such as "2026-03-01T12:00:00Z"`},
		{"flows=a", "flows", "is not taken here: want state, flow, group, since, until, payload, limit or cursor"},
	} {
		wantFault(t, httpapi.ListJobs, "/v1/buckets/b/jobs?"+test.query, "", test.field, test.reason)
	}
	wantFault(t, httpapi.FlowOperations.Show, "/v1/buckets/b/flow", "", "flow", "is missing: name the flow as ?flow=")
}

func wantFault[In, Out any](t *testing.T, op *httpapi.Operation[In, Out], target, body, field, reason string) {
	t.Helper()
	r := httptest.NewRequest(op.Method, "http://localhost"+target, strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:1"
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	httpapi.ServeOperation(op, func(*http.Request, *In) (out Out, err error) {
		t.Errorf("%s %s: it was carried out", target, body)
		return out, nil
	}).ServeHTTP(w, r)
	var problem struct {
		Errors []struct{ Field, Reason string }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil || w.Code != http.StatusBadRequest || len(problem.Errors) != 1 {
		t.Fatalf("%s %s: %d %s", target, body, w.Code, w.Body)
	}
	if got := problem.Errors[0]; got.Field != field || got.Reason != reason {
		t.Errorf("%s %s: %s: %s, want %s: %s", target, body, got.Field, got.Reason, field, reason)
	}
}
