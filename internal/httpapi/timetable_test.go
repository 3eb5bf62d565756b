package httpapi_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/schedule"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/producer"
)

// A timetable has each stretch of the windows and the calendar, also over a change of clocks, and each fire: also of a bucket that nothing has used
// yet, and of one whose plan only Redis knows.
func TestTimetable(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	always, nightly := buckets(t)[0], buckets(t)[1]
	nightly.Limits = nil
	nightly.Drain = &schedule.Drain{Cron: "0 1 * * *", Timezone: "Europe/Paris", For: 4 * time.Hour, FinishBy: "04:00"}
	nightly.Calendar = []shaper.CalendarLine{{From: "02:00", To: "04:30", Days: "sun", Timezone: "Europe/Paris", Rate: rateOf(t, "5/h")}}
	nightly.Schedules = []shaper.Schedule{{Name: "half-past", Cron: "30 2 * * *", Timezone: "Europe/Paris", Job: shaper.ScheduledJob{Payload: []byte("1")}}}
	here := serve(t, httpapi.NewOps(httpapi.OpsConfig{Buckets: newOperator(t, connect(t, store.URL()), nil, []shaper.Bucket{always, nightly})}))
	elsewhere := serve(t, httpapi.NewOps(httpapi.OpsConfig{Buckets: newOperator(t, connect(t, store.URL()), nil, []shaper.Bucket{always})}))
	// The night of 2027-03-28: no clock shows 02:00 to 03:00.
	const path = "/v1/buckets/limited/timetable?from=2027-03-27T12:00:00Z&until=2027-03-28T12:00:00Z"
	want := `{"bucket":"limited","from":"2027-03-27T12:00:00Z","until":"2027-03-28T12:00:00Z","stretches":[` +
		`{"from":"2027-03-27T12:00:00Z","until":"2027-03-28T00:00:00Z","open":false},` +
		`{"from":"2027-03-28T00:00:00Z","until":"2027-03-28T01:00:00Z","open":true,"rate":"1/h","finish":"2027-03-28T02:00:00Z"},` +
		`{"from":"2027-03-28T01:00:00Z","until":"2027-03-28T02:00:00Z","open":true,"rate":"5/h","finish":"2027-03-28T02:00:00Z"},` +
		`{"from":"2027-03-28T02:00:00Z","until":"2027-03-28T02:30:00Z","open":true,"rate":"5/h"},` +
		`{"from":"2027-03-28T02:30:00Z","until":"2027-03-28T04:00:00Z","open":true,"rate":"1/h"},` +
		`{"from":"2027-03-28T04:00:00Z","until":"2027-03-28T12:00:00Z","open":false}],"fires":[FIRE]}`
	fire := `{"at":"2027-03-28T01:00:00Z","schedule":"half-past"}`
	check := func(api *server, want string) {
		t.Helper()
		var got, wanted any
		a := api.do("GET", path, "").want(200, "")
		must.OK(t, json.Unmarshal([]byte(a.text), &got))
		must.OK(t, json.Unmarshal([]byte(want), &wanted))
		if diff := cmp.Diff(wanted, got); diff != "" {
			t.Error(diff)
		}
	}
	withFire := func(fire string) string {
		text := []byte(want)
		return string(text[:len(text)-len("FIRE]}")]) + fire + "]}"
	}
	check(here, withFire("")) // no dispatcher has seen the schedule yet
	client := must.Get(producer.New(producer.Config{Redis: connect(t, store.URL()), Buckets: []shaper.Bucket{nightly}}))(t)
	must.Get(client.Enqueue(t.Context(), shaper.Job{Bucket: "limited", Payload: []byte("1")}))(t)
	check(elsewhere, withFire(""))
	here.do("PUT", "/v1/schedules/made", `{"bucket":"limited","cron":"30 2 * * *","timezone":"Europe/Paris","payload":1}`).want(200, "")
	check(here, withFire(fire+`,{"at":"2027-03-28T01:00:00Z","schedule":"made"}`))
	here.do("POST", "/v1/schedules/made/pause", "").want(200, "")
	check(here, withFire(fire))

	for query, status := range map[string]int{
		"": 200, "?from=2027-03-27T12:00:00Z": 200, "?from=2027-03-27T12:00:00Z&until=2027-05-02T12:00:00Z": 400, "?until=2020-01-01T00:00:00Z": 400,
		"?from=x": 400, "?from=2027-03-27T12:00:00Z&until=2027-03-27T12:00:00Z": 400,
	} {
		if a := here.do("GET", "/v1/buckets/roomy/timetable"+query, ""); a.status != status {
			t.Errorf("%s: %d %s", query, a.status, a.text)
		}
	}
	here.do("GET", "/v1/buckets/none/timetable", "").want(404, "unknown-bucket")
	// One that fires each second has no more fires than an answer bears.
	here.do("PUT", "/v1/schedules/often", `{"bucket":"roomy","cron":"* * * * * *","payload":1}`).want(200, "")
	a := here.do("GET", "/v1/buckets/roomy/timetable?from=2027-03-27T12:00:00Z", "").want(200, "")
	fires, _ := a.json["fires"].([]any)
	if a.json["until"] != "2027-03-27T12:16:40Z" || len(fires) != 1000 {
		t.Errorf("until %v: %d fires", a.json["until"], len(fires))
	}
}
