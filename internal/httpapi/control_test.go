package httpapi_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper/operator"
)

// station is both APIs on one Redis.
func station(t *testing.T) (producer, ops *server, store *redistest.Server) {
	t.Helper()
	store = redistest.Start(t)
	registry := prometheus.NewPedanticRegistry()
	client, op := newClient(t, connect(t, store.URL()), registry), newOperator(t, connect(t, store.URL()), registry, buckets(t))
	registry.MustRegister(operator.NewCollector(t.Context(), op))
	producer = serve(t, httpapi.NewProducer(httpapi.ProducerConfig{Jobs: client, CheckJob: checkJob, Logger: logTo(t.Output())}))
	return producer, serve(t, httpapi.NewOps(httpapi.OpsConfig{Buckets: op, Metrics: registry})), store
}

func TestPauseByAPI(t *testing.T) {
	t.Parallel()
	producer, ops, _ := station(t)
	a := ops.do("POST", "/v1/buckets/small/pause", `{"reason":"the receiver is down"}`).want(200, "")
	pause := a.json["pause"].(map[string]any)
	if pause["reason"] != "the receiver is down" || pause["by"] != "a program on the dispatcher's machine" || pause["since"] == "" {
		t.Errorf("pause %v", pause)
	}
	// It takes jobs in until it is full, and tells no time.
	const small = "/v1/buckets/small/jobs"
	producer.do("POST", small, job(`"id":"a"`)).want(202, "").lacks("eta")
	a = producer.do("POST", small, job("")).want(429, "bucket-full")
	a.wantHeader("Retry-After", "")
	a.lacks("retry_after")
	if detail := fmt.Sprint(a.json["detail"]); !strings.Contains(detail, "full (1/1): it is paused") {
		t.Errorf("detail %q", detail)
	}
	a = producer.do("POST", small+"/batch", "["+job("")+"]").want(429, "bucket-full")
	a.wantHeader("Retry-After", "")
	a = producer.do("GET", small+"/a", "").want(200, "")
	a.lacks("eta")
	if why := fmt.Sprint(a.json["why"], a.json["blocked_by"]); !strings.Contains(why, "(the receiver is down)") || !strings.Contains(why, "[paused pace]") {
		t.Errorf("why %s", why)
	}

	ops.do("POST", "/v1/buckets/small/pause", "").want(200, "") // no reason, no body
	ops.do("POST", "/v1/buckets/small/resume", "").want(200, "").lacks("pause")
	ops.do("POST", "/v1/buckets/small/resume", "").want(200, "")
	if producer.do("GET", small+"/a", "").want(200, "").json["eta"] == nil {
		t.Error("no time is told after the pause")
	}
	if a := producer.do("POST", small, job("")).want(429, "bucket-full"); a.header.Get("Retry-After") == "" {
		t.Error("no Retry-After after the pause")
	}
	for body, field := range map[string]string{`{"reason":1}`: "reason", `{"why":"x"}`: "why", `[]`: "body",
		`{"reason":"` + strings.Repeat("x", operator.MaxReason+1) + `"}`: "reason"} {
		wantField(t, ops.do("POST", "/v1/buckets/small/pause", body), field)
	}
	ops.do("POST", "/v1/buckets/small/pause", `{}`, "Content-Type", "text/plain").want(415, "unsupported-media-type")
	ops.do("POST", "/v1/buckets/nobody/pause", "").want(404, "unknown-bucket")
	ops.do("POST", "/v1/buckets/No%20name/resume", "").want(404, "unknown-bucket")
	a = ops.do("GET", "/metrics", "").want(200, "")
	for _, line := range []string{`control_actions_total{action="pause",bucket="small"} 2`, `control_actions_total{action="resume",bucket="small"} 2`,
		`tundish_bucket_paused{bucket="small"} 0`} {
		if !strings.Contains(a.text, line) {
			t.Errorf("/metrics has no %s", line)
		}
	}
}

// wantField demands a 400 that names the field.
func wantField(t *testing.T, a *answer, field string) {
	t.Helper()
	a.want(400, "invalid")
	faults, ok := a.json["errors"].([]any)
	if !ok || len(faults) != 1 || faults[0].(map[string]any)["field"] != field {
		t.Errorf("want a fault of %s: %s", field, a.text)
	}
}

func TestSetByAPI(t *testing.T) {
	t.Parallel()
	_, ops, _ := station(t)
	a := ops.do("PATCH", "/v1/buckets/roomy", `{"rate":"20/s","capacity":50,"shed":{"low":10,"normal":80,"high":95}}`).want(200, "")
	a.has("rate", "20/s")
	a.has("capacity", float64(50))
	a = ops.do("PATCH", "/v1/buckets/roomy", `{"burst":4}`, "Content-Type", "application/merge-patch+json").want(200, "")
	var overrides []string
	for _, p := range a.json["overrides"].([]any) {
		override := p.(map[string]any)
		overrides = append(overrides, fmt.Sprint(override["setting"], " ", override["configured"], ">", override["in_force"]))
		if override["at"] == nil || override["by"] == "" {
			t.Errorf("override %v", override)
		}
	}
	must.Equal(t, strings.Join(overrides, ", "), "rate 1/h>20/s, burst 1>4, capacity 10000>50, shed.low 100>10, shed.normal 100>80, shed.high 100>95", "overrides")
	ops.do("DELETE", "/v1/buckets/roomy/overrides/rate", "").want(200, "").has("rate", "1/h")
	a = ops.do("DELETE", "/v1/buckets/roomy/overrides", "").want(200, "")
	a.has("capacity", float64(10_000))
	if overrides := a.json["overrides"].([]any); len(overrides) != 0 {
		t.Errorf("overrides %v", overrides)
	}
	ops.do("DELETE", "/v1/buckets/roomy/overrides", "").want(200, "")

	for body, field := range map[string]string{
		`{"rate":"0/s"}`: "rate", `{"rate":"-1/s"}`: "rate", `{"rate":"NaN/s"}`: "rate", `{"rate":"1000001/s"}`: "rate", `{"rate":5}`: "rate",
		`{"rate":"5 tokens/s"}`: "rate", `{"burst":0}`: "burst", `{"burst":1.5}`: "burst", `{"capacity":"5"}`: "capacity", `{"capacity":null}`: "capacity",
		`{"max_in_flight":0}`: "max_in_flight", `{"shed":{"high":95}}`: "shed", `{"shed":{"critical":5}}`: "shed.critical", `{"shed":5}`: "shed",
		`{}`: "body", `[]`: "body", `{"name":"x"}`: "name", `{"burst":1,"burst":2}`: "burst", `{"scheduled_capacity":-1}`: "scheduled_capacity",
	} {
		wantField(t, ops.do("PATCH", "/v1/buckets/roomy", body), field)
	}
	if a := ops.do("PATCH", "/v1/buckets/roomy", `{"rate":"0/h"}`); !strings.Contains(a.text, "pause it") {
		t.Errorf("a rate of 0: %s", a.text)
	}
	if a := ops.do("PATCH", "/v1/buckets/roomy", `{"shed":5}`); !strings.Contains(a.text, "want an object with low, normal or high") {
		t.Errorf("a table that is none: %s", a.text)
	}
	ops.do("DELETE", "/v1/buckets/roomy/overrides/name", "").want(400, "invalid")
	ops.do("PATCH", "/v1/buckets/nobody", `{"burst":1}`).want(404, "unknown-bucket")
	if a := ops.do("GET", "/v1/buckets/roomy", "").want(200, ""); len(a.json["overrides"].([]any)) != 0 {
		t.Errorf("something was changed: %s", a.text)
	}
}

func TestPurgeByAPI(t *testing.T) {
	t.Parallel()
	producer, ops, store := station(t)
	producer.do("POST", jobs, job(`"id":"a"`)).want(202, "")
	producer.do("POST", jobs, job(`"id":"b","delay":"1h"`)).want(202, "")
	const path = "/v1/buckets/roomy/purge"
	for body, field := range map[string]string{`{}`: "confirm", `{"confirm":"small"}`: "confirm", `{"confirm":"roomy","keep_later":1}`: "keep_later",
		`{"confirm":"roomy","all":true}`: "all"} {
		wantField(t, ops.do("POST", path, body), field)
	}
	ops.do("POST", path, "").want(415, "unsupported-media-type")
	for body, want := range map[string]float64{`{"dry_run":true}`: 2, `{"dry_run":true,"keep_later":true}`: 1} {
		a := ops.do("POST", path, body).want(200, "")
		a.has("matched", want)
		a.has("purged", 0.0)
	}
	wantField(t, ops.do("POST", path, `{"dry_run":"yes"}`), "dry_run")
	ops.do("POST", path, `{"confirm":"roomy","keep_later":true}`).want(200, "").has("purged", float64(1))
	a := ops.do("POST", path, `{"confirm":"roomy"}`).want(200, "")
	a.has("purged", float64(1))
	a.has("left", float64(0))
	ops.do("GET", "/v1/buckets/roomy", "").want(200, "").has("purged", float64(2))
	producer.do("GET", jobs+"/a", "").want(200, "").has("state", "cancelled")
	ops.do("POST", "/v1/buckets/nobody/purge", `{"confirm":"nobody"}`).want(404, "unknown-bucket")
	if a := ops.do("GET", "/metrics", ""); !strings.Contains(a.text, `tundish_jobs_purged_total{bucket="roomy"} 2`) {
		t.Error(a.text)
	}
	store.Kill()
	ops.do("POST", path, `{"confirm":"roomy"}`).want(503, "store-unavailable")
	ops.do("POST", "/v1/buckets/roomy/pause", "").want(503, "store-unavailable")
}
