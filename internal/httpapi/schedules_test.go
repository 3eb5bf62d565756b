package httpapi_test

import (
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/producer"
)

// A schedule is listed, paused, resumed and has to fire, by those whose key is for its bucket.
func TestSchedules(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	all := buckets(t)
	all[0].Schedules = []shaper.Schedule{{Name: "nightly", Cron: "0 2 * * *", Timezone: "Europe/Paris", Job: shaper.ScheduledJob{Payload: []byte("1")}}}
	client, err := producer.New(producer.Config{Redis: connect(t, store.URL()), Buckets: all})
	if err != nil {
		t.Fatal(err)
	}
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
