package httpapi_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/producer"
)

// TestRefusals holds what each reason of a refusal becomes, alone and in a
// batch beside a job that gets in.
func TestRefusals(t *testing.T) {
	t.Parallel()
	want := map[shaper.Reason]struct {
		status int
		retry  string
	}{
		shaper.ReasonLimit:         {429, "2"},
		shaper.ReasonImpossible:    {422, ""},
		shaper.ReasonBucketFull:    {429, "2"},
		shaper.ReasonScheduledFull: {429, "2"},
		shaper.ReasonFlowFull:      {429, "2"},
		shaper.ReasonGroupFull:     {429, "2"},
		shaper.ReasonTooManyFlows:  {429, "2"},
		shaper.ReasonDeadFull:      {429, "2"},
		shaper.ReasonShed:          {429, "2"},
		shaper.ReasonIdentity:      {400, ""},
		shaper.ReasonIDReused:      {422, ""},
		shaper.ReasonIDTaken:       {409, ""},
		shaper.ReasonIDEnded:       {409, ""},
		shaper.ReasonFlowDisabled:  {409, ""},
		shaper.ReasonUnknownFlow:   {404, ""},
		shaper.ReasonUnknownBundle: {404, ""},
		shaper.ReasonWaitTooLong:   {429, "2"},
		shaper.ReasonOverloaded:    {503, "2"},
	}
	for _, reason := range shaper.Reasons() {
		t.Run(string(reason), func(t *testing.T) {
			t.Parallel()
			want, known := want[reason]
			if !known {
				t.Fatalf("no status is known for %s", reason)
			}
			refusal := &shaper.Refusal{Reason: reason, Detail: "why"}
			if want.retry != "" {
				refusal.RetryAfter = 1001 * time.Millisecond
			}
			f := &fake{}
			f.enqueue = func(context.Context) ([]shaper.Receipt, error) {
				receipts := make([]shaper.Receipt, len(f.got))
				receipts[len(receipts)-1].Refusal = refusal
				return receipts, nil
			}
			api := serveFake(t, f, &logBuffer{})
			a := api.do("POST", jobs, job(`"priority":"low"`)).want(want.status, string(reason))
			a.wantHeader("Retry-After", want.retry)
			must.Equal(t, f.got[0].Priority, shaper.PriorityLow, "priority")
			a = api.do("POST", jobs+"/batch", "["+job("")+","+job("")+"]").want(200, "")
			second := a.json["results"].([]any)[1].(map[string]any)
			if second["status"] != float64(want.status) || second["code"] != string(reason) || (second["retry_after"] != nil) != (want.retry != "") {
				t.Errorf("in a batch: %s", a.text)
			}
		})
	}
}

func TestShedding(t *testing.T) {
	t.Parallel()
	crowded := buckets(t)[0]
	crowded.Capacity, crowded.Shed = 10, shaper.Shed{Low: 70, Normal: 80, High: 90}
	client := must.Get(producer.New(producer.Config{Redis: connect(t, redistest.Start(t).URL()), Buckets: []shaper.Bucket{crowded}, Timeout: patience}))(t)
	api := serve(t, httpapi.NewProducer(httpapi.ProducerConfig{Jobs: client, CheckJob: checkJob, Logger: logTo(t.Output())}))
	for range 7 {
		api.do("POST", jobs, job(`"priority":"low"`)).want(202, "")
	}
	a := api.do("POST", jobs, job(`"priority":"low"`)).want(429, "shed")
	if a.header.Get("Retry-After") == "" {
		t.Errorf("no Retry-After: %v", a.header)
	}
	api.do("POST", jobs, job(`"priority":"normal"`)).want(202, "")
	api.do("POST", jobs, job(`"priority":null`)).want(429, "shed") // normal
	api.do("POST", jobs, job(`"priority":"high"`)).want(202, "")
	api.do("POST", jobs, job(`"priority":"critical"`)).want(202, "")
	api.do("POST", jobs, job(`"priority":"critical"`)).want(429, "bucket-full")
}

// A batch of refused jobs says the earliest time at which one of them may pass, also
// where others wait for an operator and have no time.
func TestBatchRefusedSaysTheEarliestTime(t *testing.T) {
	t.Parallel()
	paused := &shaper.Refusal{Reason: shaper.ReasonFlowFull, Detail: "paused"}
	full := &shaper.Refusal{Reason: shaper.ReasonFlowFull, Detail: "full", RetryAfter: 7 * time.Second}
	slow := &shaper.Refusal{Reason: shaper.ReasonBucketFull, Detail: "slow", RetryAfter: 9 * time.Second}
	for _, test := range []struct {
		refusals []*shaper.Refusal
		retry    string
		code     string
	}{
		{[]*shaper.Refusal{paused, full}, "7", "flow-full"},
		{[]*shaper.Refusal{full, paused}, "7", "flow-full"},
		{[]*shaper.Refusal{slow, paused, full}, "7", "flow-full"},
		{[]*shaper.Refusal{full, slow, paused}, "7", "flow-full"},
		{[]*shaper.Refusal{paused, slow}, "9", "bucket-full"},
		{[]*shaper.Refusal{paused, paused}, "", "flow-full"},
	} {
		f := &fake{}
		f.enqueue = func(context.Context) ([]shaper.Receipt, error) {
			receipts := make([]shaper.Receipt, len(f.got))
			for i := range receipts {
				receipts[i].Refusal = test.refusals[i]
			}
			return receipts, nil
		}
		batch := strings.TrimSuffix(strings.Repeat(job("")+",", len(test.refusals)), ",")
		a := serveFake(t, f, &logBuffer{}).do("POST", jobs+"/batch", "["+batch+"]").want(429, test.code)
		a.wantHeader("Retry-After", test.retry)
	}
}
