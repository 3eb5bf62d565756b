package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/internal/stored"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/audit"
	"github.com/tundish-io/tundish/shaper/operator"
)

// dying is a process that dies at a command: before Redis has it, or when its reply is on the way.
type dying struct {
	redis.UniversalClient

	left    *atomic.Int64 // commands until then; negative: it does not die
	carried bool
}

var errDied = errors.New("the process died")

func (d dying) Process(ctx context.Context, cmd redis.Cmder) error {
	if d.left.Load() == 0 {
		cmd.SetErr(errDied)
		return errDied
	}
	left := d.left.Add(-1)
	if left == 0 && !d.carried {
		cmd.SetErr(errDied)
		return errDied
	}
	err := d.UniversalClient.Process(ctx, cmd)
	if left == 0 {
		cmd.SetErr(errDied)
		return errDied
	}
	return err
}

func recordsOf(t *testing.T, client redis.UniversalClient) []audit.Record {
	t.Helper()
	const all = 1000
	records, _, err := audit.NewLog(client, patience).Records(t.Context(), "", "", all)
	must.OK(t, err)
	return records
}

// Whenever the process dies, no change is without a record, and no record says that it is done before it is.
func TestNoChangeWithoutRecord(t *testing.T) {
	t.Parallel()
	const until = 20
	sawBegun, sawDone := false, false
	for after := range until {
		for _, carried := range []bool{false, true} {
			conn := connect(t, redistest.Start(t).URL())
			d := dying{conn, new(atomic.Int64), carried}
			d.left.Store(-1)
			op := newOperator(t, d, nil, buckets(t)[:1])
			api := serve(t, httpapi.NewOps(httpapi.OpsConfig{Buckets: op}))
			must.Get(op.As("a test").Bucket("roomy").Resume(t.Context()))(t)
			d.left.Store(int64(after + 1))
			a := api.do("POST", "/v1/buckets/roomy/pause", `{"reason":"x"}`)
			paused := conn.HGet(t.Context(), stored.Key("roomy", "settings"), "paused").Val() != ""
			records := recordsOf(t, conn)
			switch {
			case len(records) > 1, paused && len(records) == 0:
				t.Errorf("dead after %d commands (carried out: %t): paused: %t, records: %+v", after, carried, paused, records)
			case len(records) == 1 && records[0].Outcome == audit.Done && !paused:
				t.Errorf("dead after %d commands (carried out: %t): a record of what was not done", after, carried)
			case a.status == http.StatusOK && !paused:
				t.Errorf("dead after %d commands: %d %s", after, a.status, a.text)
			}
			sawBegun = sawBegun || len(records) == 1 && records[0].Outcome == audit.Begun && paused
			sawDone = sawDone || len(records) == 1 && records[0].Outcome == audit.Done
		}
	}
	if !sawBegun || !sawDone {
		t.Errorf("no process died between: begun %t, done %t", sawBegun, sawDone)
	}
}

// What is refused is recorded as refused, what had nothing to do as nothing, and what is only looked at or tried not at all.
func TestRecords(t *testing.T) {
	t.Parallel()
	_, ops, store := station(t)
	for i, c := range []struct {
		method, path, body string
		status             int
		operation          string
		outcome            audit.Outcome
		detail             string
	}{
		{"POST", "/v1/buckets/small/resume", "", 200, "resumeBucket", audit.Nothing, ""},
		{"PATCH", "/v1/buckets/small", `{"rate":"2/h"}`, 200, "setBucket", audit.Done, ""},
		{"PATCH", "/v1/buckets/small", `{"rate":"none"}`, 400, "setBucket", audit.Refused, "invalid: "},
		{"POST", "/v1/buckets/nosuch/pause", "", 404, "pauseBucket", audit.Refused, "unknown-bucket: "},
		{"POST", "/v1/buckets/small/purge", `{"confirm":"other"}`, 400, "purgeBucket", audit.Refused, "invalid: "},
		{"POST", "/v1/buckets/small/purge", `{"confirm":"small"}`, 200, "purgeBucket", audit.Nothing, ""},
		{"POST", "/v1/buckets/small/jobs/retry", `{"all":true}`, 200, "retryJobs", audit.Nothing, ""},
		{"POST", "/v1/buckets/small/purge", `{"dry_run":true}`, 200, "", "", ""},
		{"PUT", "/v1/schedules/x", `{"bucket":"small","cron":"@daily","dry_run":true,"payload":1}`, 200, "", "", ""},
		{"GET", "/v1/buckets/small", "", 200, "", "", ""},
		{"POST", "/v1/buckets/small/purge", `{"confirm":1}`, 400, "", "", ""}, // nothing that could be asked
	} {
		known := len(recordsOf(t, store.Client()))
		a := ops.do(c.method, c.path, c.body, "X-Request-Id", fmt.Sprint("request-", i))
		must.Equal(t, a.status, c.status, "%s %s: %s", c.method, c.path, a.text)
		records := recordsOf(t, store.Client())
		if fresh := len(records) - known; c.operation == "" && fresh != 0 || c.operation != "" && fresh != 1 {
			t.Errorf("%s %s %s: %d records", c.method, c.path, c.body, fresh)
			continue
		}
		if c.operation == "" {
			continue
		}
		r := records[0]
		if r.Operation != c.operation || r.Outcome != c.outcome || !strings.HasPrefix(r.Detail, c.detail) || (c.detail == "") != (r.Detail == "") ||
			r.Author != "a program on the dispatcher's machine" || r.Request != fmt.Sprint("request-", i) || r.Object["bucket"] == "" {
			t.Errorf("%s %s: %+v", c.method, c.path, r)
		}
	}
	a := ops.do("GET", "/v1/audit?bucket=small", "").want(200, "")
	if !strings.Contains(a.text, `"changes":[{"setting":"rate","before":"1/h","after":"2/h"}]`) {
		t.Error(a.text)
	}
	ops.do("GET", "/v1/audit?cursor=x", "").want(400, "invalid")
	ops.do("GET", "/v1/audit?limit=1001", "").want(400, "invalid")
}

// A key for some buckets sees the records of these, one at a time.
func TestAuditOfOwnBuckets(t *testing.T) {
	t.Parallel()
	op := newOperator(t, connect(t, redistest.Start(t).URL()), nil, buckets(t))
	api := serve(t, httpapi.NewOps(httpapi.OpsConfig{Buckets: op, Keys: []apikey.Key{
		keyOf("root", []string{apikey.AllBuckets}, apikey.RoleAdmin), keyOf("small", []string{"small"}, apikey.RoleRead),
		keyOf("enqueuer", []string{apikey.AllBuckets}, apikey.RoleEnqueue),
	}}))
	api.as("root", "POST", "/v1/buckets/small/pause", `{"reason":"own"}`).want(200, "")
	api.as("root", "POST", "/v1/buckets/roomy/pause", `{"reason":"foreign"}`).want(200, "")
	api.as("small", "GET", "/v1/audit", "").want(403, "forbidden")
	api.as("small", "GET", "/v1/audit?bucket=roomy", "").want(403, "forbidden")
	api.as("enqueuer", "GET", "/v1/audit", "").want(403, "forbidden")
	if a := api.as("small", "GET", "/v1/audit?bucket=small", "").want(200, ""); !strings.Contains(a.text, "own") || strings.Contains(a.text, "foreign") || !strings.Contains(a.text, `"key root"`) {
		t.Error(a.text)
	}
}

// No secret, URL, header or payload is in a record or a log, however it was given.
func TestNoSecretInRecords(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	b := buckets(t)[0]
	b.Name = "flowing"
	flow := shaper.DefaultFlowSettings()
	flow.Key = shaper.FlowKeyJob
	b.Flow = &flow
	var log bytes.Buffer
	op := must.Get(operator.New(operator.Config{Redis: connect(t, store.URL()), Buckets: []shaper.Bucket{b}, Timeout: patience, Logger: logTo(&log)}))(t)
	api := serve(t, httpapi.NewOps(httpapi.OpsConfig{Buckets: op, Logger: logTo(&log)}))
	const secret = "whsec_Y2FuYXJ5Y2FuYXJ5Y2FuYXJ5Y2FuYXJ5"
	for _, c := range []struct{ method, path, contentType, body string }{
		{"PATCH", "/v1/buckets/flowing/flow?flow=acme&create=true", "application/json", `{"weight":3,"url":"https://u:canary@a.example/canary","headers":{"Authorization":"canary"},"secrets":["` + secret + `"]}`},
		{"PATCH", "/v1/buckets/flowing/flow?flow=acme", "application/json", `{"add_secrets":["` + secret + `"]}`},
		{"PUT", "/v1/buckets/flowing/flow?flow=acme", "application/json", `{"weight":4,"url":"https://u:canary@a.example/canary"}`},
		{"PUT", "/v1/buckets/flowing/flows", "application/x-ndjson", `{"flow":"acme","url":"https://u:canary@a.example/canary","secrets":["` + secret + `"]}`},
		{"PUT", "/v1/schedules/made", "application/json", `{"bucket":"flowing","cron":"@daily","flow":"acme","url":"https://u:canary@a.example/canary","headers":{"X-Key":"canary"},"payload":"canary"}`},
		{"PUT", "/v1/schedules/made", "application/json", `{"bucket":"flowing","cron":"@canary","payload":{"canary":1}}`},
		{"PATCH", "/v1/buckets/flowing/flow?flow=acme", "application/json", `{"secrets":["whsec_canary"]}`},
	} {
		a := api.do(c.method, c.path, c.body, "Content-Type", c.contentType)
		t.Logf("%s %s: %d %s", c.method, c.path, a.status, a.text)
	}
	records := recordsOf(t, store.Client())
	const made = 7
	must.Equal(t, len(records), made, "records")
	text := must.Get(json.Marshal(records))(t)
	for _, hidden := range []string{"canary", "Y2FuYXJ5"} {
		if strings.Contains(strings.ReplaceAll(string(text), "@canary", ""), hidden) || strings.Contains(strings.ReplaceAll(log.String(), "@canary", ""), hidden) {
			t.Errorf("%s stands in %s\nor in %s", hidden, text, &log)
		}
	}
	if !strings.Contains(string(text), `"settings":["headers","secrets","url","weight"]`) || !strings.Contains(string(text), `{"setting":"weight","before":"","after":"3"}`) {
		t.Errorf("%s", text)
	}
}

// Hooks that want to are told who changed a bucket, and by what.
func TestOperatorChangedIsTold(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	all := buckets(t)[:2]
	all[0].Events = []shaper.Event{shaper.EventOperatorChanged}
	api := serve(t, httpapi.NewOps(httpapi.OpsConfig{Buckets: newOperator(t, connect(t, store.URL()), nil, all)}))
	for _, path := range []string{"/v1/buckets/roomy/resume", "/v1/buckets/roomy/pause", "/v1/buckets/limited/pause"} {
		api.do("POST", path, "").want(200, "")
	}
	texts := store.Client().HGetAll(t.Context(), stored.Key("roomy", "outbox_texts")).Val()
	if text := fmt.Sprint(texts); len(texts) != 1 || !strings.Contains(text, "operator.changed:0 0 1 ") || !strings.Contains(text, `"reason":"pauseBucket"`) || !strings.Contains(text, `"by":"a program on`) {
		t.Error(text)
	}
	must.Equal(t, store.Client().Exists(t.Context(), stored.Key("limited", "outbox_texts")).Val(), 0, "an event that no hook wants is kept")
}
