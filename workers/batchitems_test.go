package workers

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// The items of a response that says of itself that it is partial are those of the jobs, in their order. No item that is refused is done.
func TestPartialResponseToABatch(t *testing.T) {
	t.Parallel()
	bulk := Rule{Status: []string{"200"}, Pointer: "/errors", Value: "true", Outcome: RuleItems, Items: "/items", ItemStatus: "/*/status"}
	byID := Rule{Status: []string{"200"}, Outcome: RuleItems, Items: "/out", ItemStatus: "/code", ItemID: "/ref"}
	const both = "retry/batch_answer retry/batch_answer"
	for _, c := range []struct {
		name, head, body, want string
		status                 int
		rule                   *Rule
		throttled, faulty      bool
	}{
		{name: "_bulk", status: 200, body: bulkRefused, want: "done retry/http_429", throttled: true},
		{name: "_bulk with a time", status: 200, head: "Retry-After: 9", body: bulkRefused, want: "done held/http_429", throttled: true},
		{name: "_bulk, one wrong", status: 200, body: bulkWrong, want: "done dead/http_400"},
		{name: "_bulk, by a rule", status: 200, body: bulkRefused, want: "done retry/http_429", rule: &bulk, throttled: true},
		{name: "_bulk, without errors", status: 200, body: strings.Replace(bulkRefused, "true", "false", 1), want: "done done", rule: &bulk},
		{name: "_bulk, cut", status: 200, body: bulkRefused[:150], want: both, faulty: true},
		{name: "_bulk, of three", status: 200, body: `{"errors":true,"items":[{"index":{"status":200}},{"index":{"status":200}},{"index":{"status":400}}]}`, want: both, faulty: true},
		{name: "207, a list", status: 207, body: `[{"status":404},{"status":201}]`, want: "dead/http_404 done"},
		{name: "207, responses", status: 207, body: `{"responses":[{"id":"1","status":503},{"id":"2","status":201}]}`, want: "retry/http_503 done", throttled: true},
		{name: "207, of XML", status: 207, body: `<multistatus/>`, want: both, faulty: true},
		{name: "207, our own form", status: 207, body: `{"results":[{"id":"b","status":422},{"id":"a","status":200}]}`, want: "done dead/http_422"},
		{name: "by ids", status: 200, body: `{"out":[{"ref":"b","code":500},{"ref":"a","code":"200"}]}`, want: "done retry/http_500", rule: &byID},
		{name: "by ids, one missing", status: 200, body: `{"out":[{"ref":"b","code":200}]}`, want: "retry/batch_answer done", rule: &byID},
		{name: "by ids, one twice", status: 200, body: `{"out":[{"ref":"b","code":200},{"ref":"b","code":200},{"ref":"a","code":200}]}`, want: "done retry/batch_answer", rule: &byID, faulty: true},
	} {
		policy := Policy{Statuses: listed.Statuses, Hold: true}
		if c.rule != nil {
			policy.Rules = Rules{*c.rule}
		}
		h := header(c.head)
		h.Set("Content-Type", "application/json")
		request := policy.Judge(&Response{Status: c.status, Header: h, Body: []byte(c.body), At: time.Now(), OfBatch: true})
		request.Answer = &shaper.Answer{Status: c.status, Headers: h, Body: []byte(c.body)}
		batch := batchOf("a", "b")
		var got []string
		outcomes := policy.Outcomes(batch, request, time.Now())
		for _, outcome := range outcomes {
			got = append(got, strings.TrimSuffix(fmt.Sprint(outcome.Result, "/", outcome.Reason), "/"))
		}
		throttled := slices.ContainsFunc(outcomes, func(o shaper.Outcome) bool { return o.Signal == shaper.SignalThrottled }) &&
			!slices.ContainsFunc(outcomes, func(o shaper.Outcome) bool { return o.Signal == shaper.SignalAccepted })
		if strings.Join(got, " ") != c.want || throttled != c.throttled || (batch.Fault != nil) != c.faulty {
			t.Errorf("%s: %v, throttled %t, fault %v; want %s", c.name, got, throttled, batch.Fault, c.want)
		}
	}
}

// A 2xx at zero holds its scope, whatever its items say.
func TestBatchAtZero(t *testing.T) {
	t.Parallel()
	policy, h := DefaultPolicy(), http.Header{"Ratelimit": {`"a";r=0;t=5`}, "Content-Type": {"application/json"}}
	for _, body := range []string{"", `{"results":[{"id":"a","status":200},{"id":"b","status":422}]}`} {
		request := policy.Judge(&Response{Status: 200, Header: h, Body: []byte(body), At: time.Now(), OfBatch: true})
		request.Answer = &shaper.Answer{Status: 200, Headers: h, Body: []byte(body)}
		if got := policy.Outcomes(batchOf("a", "b"), request, time.Now()); got[0].Result != done || got[0].RetryAfter != 5*time.Second {
			t.Errorf("%q: %+v", body, got[0])
		}
	}
}
