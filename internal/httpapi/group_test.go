package httpapi_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/producer"
)

// grouped are buckets in which jobs name their flows, and key their groups.
func grouped(t *testing.T, keys map[string]string) []shaper.Bucket {
	t.Helper()
	var all []shaper.Bucket
	for name, key := range keys {
		b := buckets(t)[0]
		flow, group := shaper.DefaultFlowSettings(), shaper.DefaultGroupSettings()
		flow.Key, group.Key, group.Capacity = shaper.FlowKeyJob, key, 3
		b.Name, b.Flow, b.Group = name, &flow, &group
		all = append(all, b)
	}
	return all
}

// Groups are named by what the request has, and are full on their own.
func TestGroups(t *testing.T) {
	t.Parallel()
	client := must.Get(producer.New(producer.Config{
		Redis:   connect(t, redistest.Start(t).URL()),
		Buckets: append(buckets(t)[:1], grouped(t, map[string]string{"byjob": "job", "byhost": "host", "bycaller": "caller", "byheader": "header:X-Tenant"})...),
	}))(t)
	api := serve(t, httpapi.NewProducer(httpapi.ProducerConfig{Jobs: client, CheckJob: checkJob, Logger: logTo(t.Output())}))
	in := func(bucket, fields string, headers ...string) *answer {
		t.Helper()
		return api.do("POST", "/v1/buckets/"+bucket+"/jobs", job(fields), headers...)
	}
	for _, try := range []struct{ bucket, fields, group string }{
		{"byhost", `"flow":"a","group":"not asked"`, "example.com"},
		{"bycaller", `"flow":"a"`, "addr:127.0.0.1"},
		{"byheader", `"flow":"a"`, "acme"},
		{"byjob", `"flow":"a","group":"acme"`, "acme"},
	} {
		a := in(try.bucket, try.fields+`,"id":"first"`, "X-Tenant", "acme").want(202, "")
		a.has("group", try.group)
		a.has("flow", "a")
		a = api.do("GET", "/v1/buckets/"+try.bucket+"/jobs/first", "").want(200, "")
		a.has("group", try.group)
	}
	in("byjob", `"flow":"a"`).want(400, "invalid").has("detail", "group: is missing: the bucket has groups, and the job has to name its own")
	in("byheader", `"flow":"a"`).want(400, "invalid").has("detail", "group: is named by the header X-Tenant, which the request has not: send it")
	wantField(t, in("byjob", `"flow":"a","group":"`+strings.Repeat("x", shaper.MaxFlowBytes+1)+`"`), "group")
	wantField(t, in("byjob", `"flow":"a","group":7`), "group")
	in("roomy", "").want(202, "").lacks("group")

	in("byjob", `"flow":"b","group":"acme"`).want(202, "").has("position", float64(0)) // a flow of its own
	in("byjob", `"flow":"b","group":"acme"`).want(202, "")
	a := in("byjob", `"flow":"c","group":"acme"`).want(429, "group-full")
	if seconds, err := time.ParseDuration(a.header.Get("Retry-After") + "s"); err != nil || seconds < time.Minute {
		t.Errorf("Retry-After %q of a bucket with 1/h: %v", a.header.Get("Retry-After"), err)
	}
	a.has("type", "https://tundish.io/problems/group-full")
	a = api.do("POST", "/v1/buckets/byjob/jobs/batch", "["+job(`"flow":"a","group":"acme"`)+","+job(`"flow":"a","group":"b"`)+","+job(`"flow":"a"`)+"]").want(200, "")
	results := a.json["results"].([]any)
	for i, want := range []string{"429 <nil> group-full", "202 b <nil>", "400 <nil> invalid"} {
		result := results[i].(map[string]any)
		must.Equal(t, fmt.Sprintf("%v %v %v", result["status"], result["group"], result["code"]), want, "job %d of the batch", i)
	}
}

// groupStation is the operator's API of a bucket with groups, in which jobs of two of them
// wait, and of one with flows alone.
func groupStation(t *testing.T) *server {
	t.Helper()
	all := append(grouped(t, map[string]string{"grouped": "job"}), buckets(t)[0])
	flow := shaper.DefaultFlowSettings()
	flow.Key = shaper.FlowKeyJob
	all[1].Name, all[1].Flow = "flowing", &flow
	conn := connect(t, redistest.Start(t).URL())
	client := must.Get(producer.New(producer.Config{Redis: conn, Buckets: all, Timeout: patience}))(t)
	for _, name := range []string{"a b/1", "a b/2", "a b/2", "c/1"} {
		group, flow, _ := strings.Cut(name, "/")
		receipts, err := client.Enqueue(t.Context(), shaper.Job{Bucket: "grouped", Group: group, Flow: flow, Payload: []byte("1")})
		if err != nil || receipts[0].Refusal != nil {
			t.Fatal(receipts, err)
		}
	}
	return serve(t, httpapi.NewOps(httpapi.OpsConfig{Buckets: newOperator(t, conn, nil, all), Logger: logTo(t.Output())}))
}

// listed are the names and what waits of all pages.
func listed(s *server, path, what string) string {
	found := map[string]any{}
	for next, again := "", true; again; again = next != "" {
		a := s.do("GET", path+"&cursor="+next, "").want(200, "")
		for _, one := range a.json[what+"s"].([]any) {
			one := one.(map[string]any)
			name := one["group"].(string)
			if flow, ok := one["flow"]; ok {
				name += "/" + flow.(string)
			}
			found[name] = one["waiting"]
		}
		next, _ = a.json["next"].(string)
	}
	return fmt.Sprint(found)
}

func TestGroupsByAPI(t *testing.T) {
	t.Parallel()
	ops := groupStation(t)
	const group, flow = "/v1/buckets/grouped/group", "/v1/buckets/grouped/flow"
	for path, want := range map[string]string{
		group + "s?limit=1":          "map[a b:3 c:1]",
		flow + "s?limit=1":           "map[a b/1:1 a b/2:2 c/1:1]",
		flow + "s?limit=1&group=a+b": "map[a b/1:1 a b/2:2]",
		flow + "s?limit=1&group=a":   "map[]",
	} {
		what := "flow"
		if strings.HasPrefix(path, group) {
			what = "group"
		}
		must.Equal(t, listed(ops, path, what), want, "%s", path)
	}
	a := ops.do("GET", "/v1/buckets/grouped", "").want(200, "")
	must.Equal(t, fmt.Sprint(a.json["flows"], a.json["groups"]), "map[known:3] map[known:2 waiting:2]", "flows and groups of the bucket")
	a = ops.do("GET", group+"?group=a+b", "").want(200, "")
	a.has("waiting", float64(3))
	a.lacks("flow", "pause")
	a = ops.do("GET", flow+"?flow=2&group=a+b", "").want(200, "")
	a.has("waiting", float64(2))
	a.has("group", "a b")
	ops.do("GET", flow+"?flow=2&group=c", "").want(200, "").has("waiting", float64(0)) // another flow

	a = ops.do("POST", group+"/pause?group=a+b", `{"reason":"a leak"}`).want(200, "")
	if pause := a.json["pause"].(map[string]any); pause["reason"] != "a leak" || pause["since"] == "" || pause["by"] == "" {
		t.Errorf("pause %v", pause)
	}
	ops.do("GET", group+"?group=c", "").want(200, "").lacks("pause")
	ops.do("GET", flow+"?flow=1&group=a+b", "").want(200, "").lacks("pause") // its group is, not the flow
	a = ops.do("POST", group+"/resume?group=a+b", "").want(200, "")
	a.lacks("pause")
	if a.json["turn"] == nil {
		t.Error("a group that was resumed is not in the turn queue")
	}
	ops.do("POST", flow+"/pause?flow=1&group=a+b", "").want(200, "").has("group", "a b")
	ops.do("GET", flow+"?flow=1&group=c", "").want(200, "").lacks("pause") // of the same name in another group

	wantField(t, ops.do("POST", group+"/purge?group=c", `{"confirm":"grouped"}`), "confirm")
	a = ops.do("POST", flow+"/purge?flow=2&group=a+b", `{"confirm":"2"}`).want(200, "")
	a.has("purged", float64(2))
	a.has("flow", "2")
	a.has("group", "a b")
	a = ops.do("POST", group+"/purge?group=a+b", `{"confirm":"a b"}`).want(200, "")
	a.has("purged", float64(1))
	a.has("group", "a b")
	a.lacks("flow")
	ops.do("GET", group+"?group=c", "").want(200, "").has("waiting", float64(1))

	for _, path := range []string{group, group + "?flow=1", flow + "?flow=1"} {
		wantField(t, ops.do("GET", path, ""), "group")
	}
	wantField(t, ops.do("GET", flow+"?group=a+b", ""), "flow")
	wantField(t, ops.do("GET", group+"s?limit=0", ""), "limit")
	wantField(t, ops.do("POST", group+"/pause?group="+strings.Repeat("x", shaper.MaxFlowBytes+1), ""), "group")
	for _, path := range []string{"groups", "group?group=x", "flow?flow=x&group=x", "flows?group=x"} {
		ops.do("GET", "/v1/buckets/flowing/"+path, "").want(409, "no-groups")
	}
	ops.do("GET", "/v1/buckets/nobody/group?group=x", "").want(404, "unknown-bucket")
}

func TestGroupSettingsByAPI(t *testing.T) {
	t.Parallel()
	ops := groupStation(t)
	const group, flow = "/v1/buckets/grouped/group?group=a+b", "/v1/buckets/grouped/flow?flow=1&group="
	is := func(path, want string) {
		t.Helper()
		must.Equal(t, fmt.Sprint(ops.do("GET", path, "").want(200, "").json["settings"]), "map["+want+"]", "settings, want %s", want)
	}
	is(group, "")
	ops.do("PUT", group, `{"rate":"5/s","burst":2,"weight":3}`).want(200, "").has("group", "a b")
	is(group, "burst:2 rate:5/s weight:3")
	ops.do("PATCH", group, `{"capacity":0,"burst":null,"max_in_flight":4}`).want(200, "")
	is(group, "capacity:0 max_in_flight:4 rate:5/s weight:3")
	ops.do("PUT", group, `{"weight":2}`).want(200, "")
	is(group, "weight:2")
	is("/v1/buckets/grouped/group?group=c", "")
	is(flow+"a+b", "")
	ops.do("PUT", flow+"a+b", `{"weight":5}`).want(200, "")
	is(flow+"a+b", "weight:5")
	is(flow+"c", "")
	for range 2 {
		ops.do("DELETE", group, "").want(200, "")
		is(group, "")
	}
	for body, field := range map[string]string{
		`{"rate":"0/s"}`: "rate", `{"weight":0}`: "weight", `{"capacity":-1}`: "capacity", `{"rate":"1/h","burst":10000}`: "burst", `{}`: "body",
		`{"url":"https://example.com/"}`: "url", `{"headers":{}}`: "headers", `{"secrets":null}`: "secrets", `{"quotas":[]}`: "quotas",
	} {
		wantField(t, ops.do("PATCH", group, body), field)
	}
	is(group, "")
}
