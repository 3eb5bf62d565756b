package httpapi_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/audit"
	"github.com/tundish-io/tundish/shaper/producer"
)

// audited is a server whose key root has purged a bucket, as the audit has to say ever after.
func audited(t *testing.T) (api *server, client redis.UniversalClient, stays func(what string)) {
	t.Helper()
	store := redistest.Start(t)
	conn := connect(t, store.URL())
	all := buckets(t)
	jobs := newClient(t, conn, nil)
	receipts, err := jobs.Enqueue(t.Context(), shaper.Job{Bucket: all[0].Name, Payload: []byte("1")})
	if err != nil || receipts[0].Refusal != nil {
		t.Fatal(receipts, err)
	}
	every := []string{apikey.AllBuckets}
	api = serve(t, httpapi.NewOps(httpapi.OpsConfig{Buckets: newOperator(t, conn, nil, all), Keys: []apikey.Key{
		keyOf("root", every, apikey.RoleAdmin), keyOf("ops", every, apikey.RoleOperate), keyOf("ops-2", every, apikey.RoleOperate),
	}}))
	purge := fmt.Sprintf(`{"confirm":%q}`, all[0].Name)
	api.as("root", "POST", "/v1/buckets/"+all[0].Name+"/purge", purge, "X-Request-Id", "r1").want(200, "")
	before := recordsOf(t, conn)[0]
	if before.Operation != "purgeBucket" || before.Count != 1 || before.Outcome != audit.Done {
		t.Fatalf("%+v", before)
	}
	return api, conn, func(what string) {
		t.Helper()
		for _, bucket := range []string{"", all[0].Name} {
			records, _, err := audit.NewLog(conn, patience).Records(t.Context(), bucket, "", 1000)
			must.OK(t, err)
			if last := records[len(records)-1]; fmt.Sprint(last) != fmt.Sprint(before) {
				t.Errorf("%s: the oldest of %d records is %+v, want %+v", what, len(records), last, before)
			}
		}
	}
}

// Resumes that have nothing to do leave one record, and the one of a purge stays.
func TestAuditOutlivesNoOps(t *testing.T) {
	t.Parallel()
	api, client, stays := audited(t)
	const often = 1020
	for range often {
		api.as("ops", "POST", "/v1/buckets/roomy/resume", "").want(200, "")
	}
	stays("no-ops")
	// An hour that begins meanwhile begins a second record.
	records, times := recordsOf(t, client), int64(0)
	for _, record := range records[:len(records)-1] {
		times += max(record.Times, 1)
	}
	if len(records) > 3 || times != often {
		t.Errorf("%d records of %d no-ops, want at most 3 of %d: the newest is %+v", len(records), times, often, records[0])
	}
}

// A request that repeats the id of an earlier one begins a record of its own.
func TestReusedRequestID(t *testing.T) {
	t.Parallel()
	api, client, stays := audited(t)
	for _, headers := range [][]string{
		{"X-Request-Id", "r1"}, {"X-Request-Id", "r1", httpapi.HeaderPart, recordsOf(t, client)[0].ID + "."},
		{"X-Request-Id", "r1", httpapi.HeaderPart, recordsOf(t, client)[0].ID + ".-"},
	} {
		api.as("root", "POST", "/v1/buckets/roomy/purge", `{"confirm":"roomy","keep_later":true}`, headers...).want(200, "")
		api.as("root", "POST", "/v1/buckets/roomy/dead/redrive", `{"all":true}`, headers...).want(200, "")
		api.as("ops", "POST", "/v1/buckets/roomy/dead/redrive", `{"all":true}`, headers...).want(200, "")
	}
	stays("reused ids")
}

// Names that do not exist, long reasons and large inputs take the share of their author alone. No list is kept of a bucket that does not exist.
func TestAuditOutlivesHostileInput(t *testing.T) {
	t.Parallel()
	api, client, stays := audited(t)
	reason := strings.Repeat(`\u0001`, 500)
	for i := range 200 {
		api.as("ops", "POST", fmt.Sprintf("/v1/buckets/b%d/resume", i), "").want(404, "unknown-bucket")
		api.as("ops-2", "POST", "/v1/buckets/roomy/pause", fmt.Sprintf(`{"reason":"%d%s"}`, i, reason))
		api.as("ops", "POST", fmt.Sprintf("/v1/schedules/s%d/fire", i), "").want(404, "unknown-schedule")
	}
	stays("hostile input")
	keys := client.Keys(t.Context(), "tundish:{fleet}:*").Val()
	if len(keys) > 10 {
		t.Errorf("%d keys: %q", len(keys), keys)
	}
	for _, entry := range client.ZRange(t.Context(), "tundish:{fleet}:changes:lists", 0, -1).Val() {
		if strings.HasPrefix(entry, "b:b") {
			t.Errorf("a list of a bucket that does not exist: %s", entry)
		}
	}
	for id, text := range client.HGetAll(t.Context(), "tundish:{fleet}:changes:texts").Val() {
		if len(text) > 9<<10 {
			t.Errorf("record %s has %d bytes", id, len(text))
		}
	}
}

// An operation that is repeated, and finds nothing to change any more, is counted in one record of those that changed nothing. What it is asked for
// beside its bucket is another one each time. It was a record of a change each, and a key so erased its own records within seconds.
func TestRepeatedOperationsAreCounted(t *testing.T) {
	t.Parallel()
	conn := connect(t, redistest.Start(t).URL())
	all := buckets(t)[:1]
	flow := shaper.DefaultFlowSettings()
	flow.Key = shaper.FlowKeyJob
	all[0].Flow = &flow
	jobs, err := producer.New(producer.Config{Redis: conn, Buckets: all, Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	const often = 3
	for i := range often {
		if _, err := jobs.Enqueue(t.Context(), shaper.Job{Bucket: "roomy", ID: fmt.Sprint("j", i), Flow: "x", Payload: []byte("1")}); err != nil {
			t.Fatal(err)
		}
	}
	api := serve(t, httpapi.NewOps(httpapi.OpsConfig{Buckets: newOperator(t, conn, nil, all)}))
	for _, c := range []struct {
		operation, method, path, body string // %d is another object each time
		changes                       bool   // each once
	}{
		{"cancelJob", "DELETE", "/v1/buckets/roomy/jobs/j%d", "", true},
		{"openBundle", "PUT", "/v1/buckets/roomy/bundles/b%d", `{"size":2}`, true},
		{"removeFlow", "DELETE", "/v1/buckets/roomy/flow/all?flow=f%d&confirm=f%d", "", false},
		{"resetFlow", "DELETE", "/v1/buckets/roomy/flow?flow=f%d", "", false},
		{"resetBucket", "DELETE", "/v1/buckets/roomy/overrides", "", false},
		{"releaseFlow", "POST", "/v1/buckets/roomy/flow/release?flow=f%d", "", false},
	} {
		for range 2 {
			for i := range often {
				path := c.path
				for strings.Contains(path, "%d") {
					path = strings.Replace(path, "%d", fmt.Sprint(i), 1)
				}
				api.do(c.method, path, c.body).want(200, "")
			}
		}
		done, times, counted := 0, int64(0), 0
		for _, record := range recordsOf(t, conn) {
			switch {
			case record.Operation != c.operation:
			case record.Outcome == audit.Done:
				done++
			case record.Outcome == audit.Nothing:
				times, counted = times+max(record.Times, 1), counted+1
			}
		}
		wantDone := map[bool]int{true: often}[c.changes]
		if done != wantDone || times != int64(2*often-wantDone) || counted > 2 { // 2: an hour began meanwhile
			t.Errorf("%s: %d records of changes, want %d; %d records count %d others, want 1 of %d", c.operation, done, wantDone, counted, times, 2*often-wantDone)
		}
	}
	api.do("PUT", "/v1/buckets/roomy/bundles/b0", `{"size":4}`).want(200, "")
	if record := recordsOf(t, conn)[0]; record.Operation != "openBundle" || record.Outcome != audit.Done {
		t.Errorf("a bundle has another size: %+v", record)
	}
}
