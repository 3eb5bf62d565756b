package httpapi_test

import (
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/internal/stored"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/producer"
)

// A schedule is listed, paused, resumed and has to fire, by those whose key is for its bucket.
func TestSchedules(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	all := buckets(t)
	all[0].Schedules = []shaper.Schedule{{Name: "nightly", Cron: "0 2 * * *", Timezone: "Europe/Paris", Job: shaper.ScheduledJob{Payload: []byte("1")}}}
	client := must.Get(producer.New(producer.Config{Redis: connect(t, store.URL()), Buckets: all, Timeout: patience}))(t)
	if _, err := client.Enqueue(t.Context(), shaper.Job{Bucket: all[0].Name, Payload: []byte("1")}); err != nil { // which configures the bucket
		t.Fatal(err)
	}
	op := newOperator(t, connect(t, store.URL()), nil, all)
	api := serve(t, httpapi.NewOps(httpapi.OpsConfig{Buckets: op}))

	list := api.do("GET", "/v1/schedules", "").want(200, "")
	if !strings.Contains(list.text, `"name":"nightly"`) || !strings.Contains(list.text, `"timezone":"Europe/Paris"`) {
		t.Errorf("listed is %s", list.text)
	}
	const one = "/v1/schedules/nightly"
	api.do("GET", one, "").want(200, "").has("catch_up", "last")
	paused := api.do("POST", one+"/pause", `{"reason":"holidays"}`).want(200, "")
	if by, _ := paused.json["paused"].(map[string]any); by["reason"] != "holidays" || paused.json["changed"] != true {
		t.Errorf("paused: %s", paused.text)
	}
	if again := api.do("POST", one+"/pause", "").want(200, ""); again.json["changed"] != false {
		t.Errorf("paused twice: %s", again.text)
	}
	asked := api.do("POST", one+"/fire", "").want(200, "")
	if job, _ := asked.json["job"].(string); !strings.HasPrefix(job, "schedule-nightly-") || asked.json["requested"] == nil {
		t.Errorf("asked for: %s", asked.text)
	}
	if again := api.do("POST", one+"/fire", "").want(200, ""); again.json["changed"] != false || again.json["job"] != asked.json["job"] {
		t.Errorf("asked for twice: %s", again.text)
	}
	if resumed := api.do("POST", one+"/resume", "").want(200, ""); resumed.json["paused"] != nil || resumed.json["changed"] != true {
		t.Errorf("resumed: %s", resumed.text)
	}
	if runs := api.do("GET", one+"/runs", "").want(200, ""); !strings.Contains(runs.text, `"runs":[]`) {
		t.Errorf("runs: %s", runs.text)
	}

	api.do("POST", one+"/pause", `{"reason":"`+strings.Repeat("x", 501)+`"}`).want(400, "invalid")
	api.do("POST", one+"/pause", `{"why":"x"}`).want(400, "invalid")
	for _, path := range []string{"", "/runs"} {
		api.do("GET", "/v1/schedules/nosuch"+path, "").want(404, "unknown-schedule")
	}
	for _, action := range []string{"pause", "resume", "fire"} {
		api.do("POST", "/v1/schedules/nosuch/"+action, "").want(404, "unknown-schedule")
	}
}

// A schedule is made, changed and removed, by the keys of the configuration; a name that is taken is a conflict that says where.
func TestSchedulesOfTheAPI(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	all := buckets(t)
	all[0].Schedules = []shaper.Schedule{{Name: "nightly", Cron: "0 2 * * *", Job: shaper.ScheduledJob{Payload: []byte("1")}}}
	client := must.Get(producer.New(producer.Config{Redis: connect(t, store.URL()), Buckets: all, Timeout: patience}))(t)
	must.OK(t, client.JoinPools(t.Context()))
	op := newOperator(t, connect(t, store.URL()), nil, all)
	api := serve(t, httpapi.NewOps(httpapi.OpsConfig{Buckets: op}))
	name := all[0].Name
	const one = "/v1/schedules/made"
	settings := func(fields string) string { return `{"bucket":"` + name + `","cron":"0 3 * * *"` + fields + `}` }

	dry := api.do("PUT", one, settings(`,"dry_run":true`)).want(200, "")
	if next, _ := dry.json["next"].([]any); len(next) != 5 || dry.json["changed"] != nil {
		t.Errorf("a dry run: %s", dry.text)
	}
	api.do("GET", one, "").want(404, "unknown-schedule")
	full := settings(`,"timezone":"Europe/Paris","catch_up":"all","overlap":"skip","payload": {"a": 1},"priority":"low","max_attempts":3,"expires_in":"10m","headers":{"X-A":["b"]}`)
	made := api.do("PUT", one, full).want(200, "")
	if by, _ := made.json["made"].(map[string]any); made.json["source"] != "api" || made.json["changed"] != true || by["by"] == "" || made.json["overlap"] != "skip" {
		t.Errorf("made: %s", made.text)
	}
	if again := api.do("PUT", one, full).want(200, ""); again.json["changed"] != false {
		t.Errorf("made twice: %s", again.text)
	}
	job := store.Client().HGet(t.Context(), stored.Key(name, "schedules"), "made").Val()
	if !strings.HasPrefix(job, "0 3 * * * in Europe/Paris\n") || !strings.Contains(job, `"payload":"eyJhIjogMX0="`) { // {"a": 1}, its blank too
		t.Errorf("stored is %s", job)
	}
	api.do("GET", one, "").want(200, "").has("source", "api")
	api.do("GET", "/v1/schedules/nightly", "").want(200, "").has("source", "config")

	api.do("PUT", "/v1/schedules/nightly", settings("")).want(409, "schedule-conflict").has("detail",
		`schedule "nightly": is in the configuration, for bucket "`+name+`": change [[schedules]] there and reload`)
	api.do("DELETE", "/v1/schedules/nightly", "").want(409, "schedule-conflict")
	other := strings.Replace(settings(""), name, all[1].Name, 1)
	api.do("PUT", one, other).want(409, "schedule-conflict").has("detail", `schedule "made": is in bucket "`+name+`" (api) already: remove it first, or choose another name`)

	for _, c := range []struct{ body, field string }{
		{`{"bucket":"` + name + `"}`, "cron"},
		{`{"cron":"@daily"}`, "bucket"},
		{settings(`,"timezone":"Mars/Olympus"`), "timezone"},
		{settings(`,"catch_up":"some"`), "catch_up"},
		{settings(`,"overlap":"drop"`), "overlap"},
		{settings(`,"priority":"urgent"`), "priority"},
		{settings(`,"delay":"10s"`), "delay"},
		{settings(`,"callback_url":"https://a.example"`), "callback_url"},
		{settings(`,"name":"made"`), "name"},
		{settings(`,"payload":1,"body":"x"`), "body"},
		{settings(`,"expires_in":10`), "expires_in"},
		{settings(`,"headers":{"Authorization":"file:/etc/hostname"}`), "headers.Authorization"},
		{settings(`,"headers":{"X-A":["b","env:HOME"]}`), "headers.X-A"},
		{settings(`,"url":"env:HOOK"`), "url"},
		{strings.Replace(settings(""), "0 3 * * *", "0 0 30 2 *", 1), "cron"},
		{strings.Replace(settings(""), "0 3 * * *", "CRON_TZ=", 1), "cron"},
		{strings.Replace(settings(""), "0 3 * * *", "@every 10ms", 1), "cron"},
	} {
		wantField(t, api.do("PUT", one, c.body), c.field)
	}
	wantField(t, api.do("PUT", "/v1/schedules/UP", settings("")), "name")
	api.do("PUT", one, `{"bucket":"nosuch","cron":"@daily"}`).want(404, "unknown-bucket")
	api.do("PUT", one, settings(`,"payload":"`+strings.Repeat("x", 300<<10)+`"`)).want(413, "too-large")

	api.do("DELETE", one, `{"dry_run":true}`).want(200, "").has("removed", false)
	wantField(t, api.do("DELETE", one, `{"all":true}`), "all")
	gone := api.do("DELETE", one, "").want(200, "")
	gone.has("removed", true)
	if was, _ := gone.json["schedule"].(map[string]any); was["name"] != "made" {
		t.Errorf("removed: %s", gone.text)
	}
	api.do("DELETE", one, "").want(404, "unknown-schedule")
}

// A key that is for some buckets neither makes nor removes a schedule of another one, and is told nothing of it.
func TestSchedulesAndKeys(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	all := buckets(t)
	client := must.Get(producer.New(producer.Config{Redis: connect(t, store.URL()), Buckets: all, Timeout: patience}))(t)
	must.OK(t, client.JoinPools(t.Context()))
	api := httpapi.NewOps(httpapi.OpsConfig{Buckets: newOperator(t, connect(t, store.URL()), nil, all), Keys: keys()})
	do := func(key, method, path, body string, status int, want string) {
		t.Helper()
		if w := request(api, far, method, path, body, "Authorization", "Bearer "+key); w.Code != status || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s %s as %s: %d %s, want %d %s", method, path, key, w.Code, w.Body, status, want)
		}
	}
	const one, small, roomy = "/v1/schedules/made", `{"cron":"@daily","bucket":"small"}`, `{"cron":"@daily","bucket":"roomy"}`
	do("admin", "PUT", one, small, 200, `"by":"key admin"`)
	do("admin-some", "PUT", one, small, 403, `lacks bucket`)
	do("admin-some", "PUT", one, roomy, 409, "the name is taken in a bucket that the key is not for")
	do("admin-some", "DELETE", one, "", 404, "unknown-schedule")
	do("admin-some", "GET", "/v1/schedules", "", 200, `"schedules":[]`)
	do("read", "DELETE", one, "", 403, "lacks")
	do("admin", "DELETE", one, "", 200, "removed")
}

// A bucket that lives in another pool than this process knows takes no schedule from it; those that it has are looked at and controlled.
func TestSchedulesOfABucketElsewhere(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	all := buckets(t)
	joined := all[0]
	joined.Pool = &shaper.Pool{Name: "vendor", Rate: rateOf(t, "9/m")}
	joined.Schedules = []shaper.Schedule{{Name: "nightly", Cron: "0 2 * * *", Job: shaper.ScheduledJob{Payload: []byte("1")}}}
	client := must.Get(producer.New(producer.Config{Redis: connect(t, store.URL()), Buckets: []shaper.Bucket{joined}, Timeout: patience}))(t)
	must.OK(t, client.JoinPools(t.Context()))
	api := serve(t, httpapi.NewOps(httpapi.OpsConfig{Buckets: newOperator(t, connect(t, store.URL()), nil, all)}))
	refused := api.do("PUT", "/v1/schedules/made", `{"cron":"@daily","bucket":"`+joined.Name+`"}`).want(503, "store-unavailable")
	if detail, _ := refused.json["detail"].(string); !strings.Contains(detail, "another pool of the bucket") || strings.Contains(detail, "not reachable") {
		t.Errorf("refused: %s", refused.text)
	}
	api.do("GET", "/v1/schedules/nightly", "").want(200, "").has("bucket", joined.Name)
	api.do("POST", "/v1/schedules/nightly/pause", "").want(200, "").has("changed", true)
}
