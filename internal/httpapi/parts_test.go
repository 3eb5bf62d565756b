package httpapi_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/internal/stored"
	"github.com/tundish-io/tundish/shaper"
)

// flowStation is the operator's API of a bucket with flows, in which jobs of two of
// them wait, and of one without.
func flowStation(t *testing.T) *server {
	t.Helper()
	store := redistest.Start(t)
	all := buckets(t)[:2]
	all[0].Name, all[1].Name = "flowing", "plain"
	flow := shaper.DefaultFlowSettings()
	flow.Key = shaper.FlowKeyJob
	all[0].Flow, all[1].Limits = &flow, nil
	ops := serve(t, httpapi.NewOps(httpapi.OpsConfig{Buckets: newOperator(t, connect(t, store.URL()), nil, all), Logger: logTo(t.Output())}))
	ops.do("POST", "/v1/buckets/flowing/resume", "").want(200, "")
	pipe, key := connect(t, store.URL()).Pipeline(), stored.Key("flowing", "")
	for i, name := range []string{"a b", "c", "c"} {
		id := fmt.Sprint("j", i)
		pipe.HSet(t.Context(), key+"body", id, fmt.Sprintf("%d 1 00000000000cn001 {\"f\":%q}\nx", i, name))
		pipe.RPush(t.Context(), key+"q:normal:"+name, id)
	}
	pipe.HSet(t.Context(), key+"count", "seq", 3)
	pipe.HSet(t.Context(), key+"flows", "a b", stored.Waiting(1).String(), "c", stored.Waiting(2).String())
	must.Get(pipe.Exec(t.Context()))(t)
	return ops
}

func TestFlowsByAPI(t *testing.T) {
	t.Parallel()
	ops := flowStation(t)
	const flow = "/v1/buckets/flowing/flow"
	found := map[string]any{}
	for next, again := "", true; again; again = next != "" {
		a := ops.do("GET", "/v1/buckets/flowing/flows?limit=1&cursor="+next, "").want(200, "")
		for _, f := range a.json["flows"].([]any) {
			f := f.(map[string]any)
			found[fmt.Sprint(f["flow"])] = f["waiting"]
		}
		next, _ = a.json["next"].(string)
	}
	must.Equal(t, fmt.Sprint(found), "map[a b:1 c:2]", "flows %v", found)
	a := ops.do("GET", flow+"?flow=a+b", "").want(200, "")
	a.has("waiting", float64(1))
	a.lacks("pause")
	a.lacks("turn")
	ops.do("GET", flow+"?flow=", "").want(200, "").has("waiting", float64(0)) // "" is a name
	a = ops.do("GET", "/v1/buckets/flowing", "").want(200, "")
	must.Equal(t, fmt.Sprint(a.json["flows"]), "map[known:2 waiting:0]", "flows of the bucket")

	a = ops.do("POST", flow+"/pause?flow=a+b", `{"reason":"a leak"}`).want(200, "")
	if pause := a.json["pause"].(map[string]any); pause["reason"] != "a leak" || pause["since"] == "" || pause["by"] == "" {
		t.Errorf("pause %v", pause)
	}
	a = ops.do("POST", flow+"/resume?flow=a+b", "").want(200, "")
	a.lacks("pause")
	if a.json["turn"] == nil {
		t.Error("a flow that was resumed is not in the turn queue")
	}
	wantField(t, ops.do("POST", flow+"/purge?flow=c", `{"confirm":"flowing"}`), "confirm")
	wantField(t, ops.do("POST", flow+"/purge?flow=", `{}`), "confirm")
	a = ops.do("POST", flow+"/purge?flow=c", `{"confirm":"c"}`).want(200, "")
	a.has("purged", float64(2))
	a.has("flow", "c")
	ops.do("POST", "/v1/buckets/flowing/purge", `{"confirm":"flowing"}`).want(200, "").has("purged", float64(1))

	wantField(t, ops.do("GET", flow, ""), "flow")
	wantField(t, ops.do("GET", "/v1/buckets/flowing/flows?limit=0", ""), "limit")
	wantField(t, ops.do("GET", "/v1/buckets/flowing/flows?cursor=x", ""), "cursor")
	wantField(t, ops.do("POST", flow+"/pause?flow="+strings.Repeat("x", shaper.MaxFlowBytes+1), ""), "flow")
	ops.do("GET", "/v1/buckets/plain/flows", "").want(409, "no-flows")
	ops.do("POST", "/v1/buckets/plain/flow/pause?flow=x", "").want(409, "no-flows")
	ops.do("GET", "/v1/buckets/nobody/flow?flow=x", "").want(404, "unknown-bucket")
}

func TestFlowSettingsByAPI(t *testing.T) {
	t.Parallel()
	ops := flowStation(t)
	const flow = "/v1/buckets/flowing/flow?flow=a+b"
	is := func(want string) {
		t.Helper()
		a := ops.do("GET", flow, "").want(200, "")
		must.Equal(t, fmt.Sprint(a.json["settings"]), "map["+want+"]", "settings, want %s", want)
		if strings.Contains(a.text, "whsec") {
			t.Errorf("a secret is told: %s", a.text)
		}
	}
	is("")
	a := ops.do("PUT", flow, `{"rate":"5/s","burst":2,"weight":3,"url":"https://example.com/","headers":{"X-A":"b"},"secrets":["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw","whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"]}`).want(200, "")
	if strings.Contains(a.text, "whsec") {
		t.Errorf("a secret is told: %s", a.text)
	}
	const two = "secret_fingerprints:[96ad2ccd8146 2dd745ff9912] secrets_count:2"
	is("burst:2 headers:[X-A] rate:5/s " + two + " url:https://example.com/ weight:3")
	ops.do("PATCH", flow, `{"capacity":0,"burst":null,"headers":null}`).want(200, "")
	is("capacity:0 rate:5/s " + two + " url:https://example.com/ weight:3")
	ops.do("PUT", flow, `{"max_in_flight":4}`).want(200, "") // what nobody can read to send it again stays
	is("max_in_flight:4 " + two + " url:https://example.com/")
	ops.do("PATCH", flow, `{"secrets":null,"url":null}`).want(200, "")
	is("max_in_flight:4")
	for range 2 {
		ops.do("DELETE", flow, "").want(200, "")
		is("")
	}
	for body, field := range map[string]string{
		`{"rate":"0/s"}`: "rate", `{"rate":5}`: "rate", `{"weight":0}`: "weight", `{"weight":"x"}`: "weight", `{"url":"/x"}`: "url",
		`{"headers":{"X A":"b"}}`: "headers", `{"headers":{"X-A":1}}`: "headers.X-A", `{"secrets":"x"}`: "secrets", `{"secrets":[""]}`: "secrets",
		`{"secrets":["whsec_1"]}`: "secrets", `{"url":"https://u:p@example.com/"}`: "url", `{"headers":{"Host":"b"}}`: "headers.Host", // no worker could use them
		`{"paused":1}`: "paused", `{}`: "body", `[]`: "body", `{"burst":1,"burst":2}`: "burst", `{"rate":"1/h","burst":10000}`: "burst",
	} {
		wantField(t, ops.do("PATCH", flow, body), field)
	}
	is("")
	wantField(t, ops.do("PUT", "/v1/buckets/flowing/flow", `{"weight":1}`), "flow")
}

// Secrets of a flow come and go one by one. A request that is sent twice makes the change once.
func TestSecretsOfAFlowByAPI(t *testing.T) {
	t.Parallel()
	ops := flowStation(t)
	const flow = "/v1/buckets/flowing/flow?flow=a+b"
	secret := func(n int) string {
		return fmt.Sprintf(`"whsec_%s"`, base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "a secret with the number %06d", n)))
	}
	printOf := func(n int) string { return shaper.SecretFingerprint(strings.Trim(secret(n), `"`)) }
	change := func(body string, want ...int) {
		t.Helper()
		prints := []string{}
		for _, n := range want {
			prints = append(prints, printOf(n))
		}
		for range 2 {
			a := ops.do("PATCH", flow, body).want(200, "")
			if got := fmt.Sprint(a.json["settings"].(map[string]any)["secret_fingerprints"]); len(want) > 0 && got != fmt.Sprint(prints) {
				t.Errorf("%s: secrets %v, want %v", body, got, prints)
			} else if len(want) == 0 && got != "<nil>" {
				t.Errorf("%s: secrets %v are left", body, got)
			}
			if strings.Contains(a.text, "whsec") {
				t.Errorf("a secret is told: %s", a.text)
			}
		}
	}
	change(`{"add_secrets":[`+secret(1)+`]}`, 1)
	change(`{"add_secrets":[`+secret(2)+`],"weight":3}`, 2, 1)
	change(`{"add_secrets":[`+secret(1)+`]}`, 2, 1)
	change(`{"remove_secrets":["`+printOf(1)+`"],"add_secrets":[`+secret(3)+`]}`, 3, 2)
	change(`{"remove_secrets":["`+printOf(1)+`"]}`, 3, 2)
	change(`{"add_secrets":[`+secret(4)+`,`+secret(5)+`,`+secret(6)+`,`+secret(7)+`,`+secret(8)+`,`+secret(9)+`]}`, 4, 5, 6, 7, 8, 9, 3, 2)
	for body, field := range map[string]string{
		`{"add_secrets":[` + secret(1) + `]}`: "add_secrets", `{"add_secrets":["whsec_1"]}`: "secrets", `{"add_secrets":null}`: "add_secrets",
		`{"remove_secrets":["2"]}`: "remove_secrets", `{"remove_secrets":["` + printOf(2) + `"],"add_secrets":[` + secret(2) + `]}`: "add_secrets",
		`{"secrets":[],"add_secrets":[` + secret(2) + `]}`: "secrets", `{"add_secrets":[` + secret(2) + `],"secrets":null}`: "secrets",
	} {
		wantField(t, ops.do("PATCH", flow, body), field)
	}
	change(`{"weight":2}`, 4, 5, 6, 7, 8, 9, 3, 2)
	change(`{"remove_secrets":["`+printOf(9)+`","`+printOf(8)+`","`+printOf(7)+`","`+printOf(6)+`","`+printOf(5)+`","`+printOf(4)+`","`+printOf(3)+`"]}`, 2)
	change(`{"remove_secrets":["` + printOf(2) + `"]}`)
	wantField(t, ops.do("PATCH", "/v1/buckets/flowing/group?group=g", `{"add_secrets":[`+secret(1)+`]}`), "add_secrets")
}

// A value that the configuration and the commands would read from elsewhere is refused: it would be sent, or sign, as it is.
func TestReferencesInSettingsOfAFlow(t *testing.T) {
	t.Parallel()
	ops := flowStation(t)
	for body, field := range map[string]string{
		`{"headers":{"X-A":"env:TOKEN"}}`: "headers.X-A", `{"headers":{"X-A":"file:/run/secrets/a"}}`: "headers.X-A",
		`{"secrets":["env:SECRET"]}`: "secrets[0]", `{"add_secrets":["file:/run/secrets/a"]}`: "add_secrets[0]",
	} {
		a := ops.do("PATCH", "/v1/buckets/flowing/flow?flow=a+b", body)
		wantField(t, a, field)
		if !strings.Contains(a.text, "begins with env:, file: or cred:") {
			t.Errorf("%s: %s", body, a.text)
		}
	}
	must.Equal(t, fmt.Sprint(ops.do("GET", "/v1/buckets/flowing/flow?flow=a+b", "").want(200, "").json["settings"]), "map[]", "the settings are")
}

// What a flow's deliveries carry is shown to nobody, whatever his role.
func TestCredentialsOfAFlowAreNotShown(t *testing.T) {
	t.Parallel()
	ops := flowStation(t)
	const flow = "/v1/buckets/flowing/flow?flow=a+b"
	set := func(fields string) *answer { return ops.do("PUT", flow, "{"+fields+"}").want(200, "") }
	answers := []*answer{
		set(`"url":"https://EXAMPLE.com:443/services/hunter2?token=hunter2","headers":{"X-B":"hunter2","Authorization":"Bearer hunter2"}`),
		ops.do("GET", flow, ""), ops.do("GET", "/v1/buckets/flowing/flows", ""), ops.do("PATCH", flow, `{"weight":2}`),
	}
	for _, a := range answers {
		if a.want(200, ""); strings.Contains(a.text, "hunter2") || !strings.Contains(a.text, `"url":"https://example.com/***","headers":["Authorization","X-B"]`) {
			t.Error(a.text)
		}
	}
	// What was read cannot be sent back by mistake.
	wantField(t, ops.do("PATCH", flow, `{"url":"https://example.com/***"}`), "url")
	wantField(t, ops.do("PATCH", flow, `{"headers":["Authorization","X-B"]}`), "headers")
	for url, shown := range map[string]string{
		"https://example.com": "https://example.com", "http://example.com:8080/": "http://example.com:8080/",
		"https://example.com/?hunter2": "https://example.com/***", "https://example.com/a": "https://example.com/***",
	} {
		set(`"url":"` + url + `"`)
		settings, _ := ops.do("GET", flow, "").want(200, "").json["settings"].(map[string]any)
		must.Equal(t, settings["url"], any(shown), "the URL %s is shown", url)
	}
}

// What the answers of a receiver have changed is shown until it is released.
func TestReleaseByAPI(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	all := buckets(t)[:2]
	all[0].Name, all[1].Name = "flowing", "pooled"
	flow := shaper.DefaultFlowSettings()
	flow.Key = shaper.FlowKeyJob
	all[0].Flow, all[1].Pool = &flow, &shaper.Pool{Name: "vendor", Rate: rateOf(t, "10/s")}
	ops := serve(t, httpapi.NewOps(httpapi.OpsConfig{Buckets: newOperator(t, connect(t, store.URL()), nil, all), Logger: logTo(t.Output())}))
	ops.do("POST", "/v1/buckets/flowing/resume", "").want(200, "")
	ops.do("POST", "/v1/buckets/pooled/resume", "").want(200, "")
	until := time.Now().Add(time.Hour).UnixMicro()
	text := stored.Downstream{Till: until, RateCount: 5000, RatePer: 1_000_000_000, Breaker: 1, Failures: 12, Opened: 1, First: until, OpenFor: 1, ChangedAt: until, Reason: "timeout"}.String()
	holding := stored.Waiting(1)
	holding.Downstream = text
	pipe := connect(t, store.URL()).Pipeline()
	pipe.HSet(t.Context(), stored.Key("flowing", "flows"), "a b", holding.String())
	pipe.HSet(t.Context(), stored.KeyIn("vendor", "pooled", "pace"), "down", text)
	pipe.HSet(t.Context(), stored.PoolKey("vendor", "pace"), "down", text)
	must.Get(pipe.Exec(t.Context()))(t)
	for path, flow := range map[string]string{"/v1/buckets/flowing/flow": "?flow=a+b", "/v1/buckets/pooled": "", "/v1/pools/vendor": ""} {
		a := ops.do("GET", path+flow, "").want(200, "")
		view, _ := a.json["downstream"].(map[string]any)
		if view["breaker"] != "open" || view["failures"] != 12.0 || view["reason"] != "timeout" || view["held_until"] == nil || view["open_since"] == nil {
			t.Errorf("%s: %s", path, a.text)
		}
		for range 2 { // safe to repeat
			ops.do("POST", path+"/release"+flow, "").want(200, "").lacks("downstream")
		}
	}
	hold := func(flow string) {
		connect(t, store.URL()).HSet(t.Context(), stored.Key("flowing", "flows"), flow, holding.String())
	}
	hold("a b")
	hold("c")
	const release = "/v1/buckets/flowing/release"
	plain := ops.do("POST", release, "").want(200, "")
	plain.has("changed", false)
	plain.lacks("flows_released")
	for _, n := range []float64{2, 0} {
		all := ops.do("POST", release+"?all_flows=true", "").want(200, "")
		all.has("changed", n > 0)
		all.has("flows_released", n)
		all.lacks("more")
	}
	ops.do("GET", "/v1/buckets/flowing/flow?flow=c", "").want(200, "").lacks("downstream")
	ops.do("POST", "/v1/buckets/pooled/release?all_flows=true", "").want(409, "no-flows")
	ops.do("POST", "/v1/buckets/nobody/release?all_flows=true", "").want(404, "")
	ops.do("POST", "/v1/buckets/flowing/flow/release", "").want(400, "")
	ops.do("POST", "/v1/buckets/nobody/release", "").want(404, "")
	ops.do("POST", "/v1/pools/nobody/release", "").want(404, "")
	ops.do("POST", "/v1/buckets/flowing/group/release?group=a", "").want(404, "")
}

// A disabled flow is shown until it is enabled, and its dead letters are redriven where that is asked for.
func TestEnableByAPI(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	all := buckets(t)[:1]
	all[0].Name = "flowing"
	flow := shaper.DefaultFlowSettings()
	flow.Key = shaper.FlowKeyJob
	all[0].Flow = &flow
	ops := serve(t, httpapi.NewOps(httpapi.OpsConfig{Buckets: newOperator(t, connect(t, store.URL()), nil, all), Logger: logTo(t.Output())}))
	ops.do("POST", "/v1/buckets/flowing/resume", "").want(200, "")
	pipe := connect(t, store.URL()).Pipeline()
	key := stored.Key("flowing", "")
	pipe.HSet(t.Context(), key+"flow_settings", "a b", "- - - - - - - 1783228800123456/gone\n-")
	pipe.ZAdd(t.Context(), key+"disabled", redis.Z{Member: "a b", Score: 1})
	pipe.HSet(t.Context(), key+"body", "j", "0 1 00000000000cn001 {\"f\":\"a b\"}\n1", "other", "1 1 00000000000cn001 {\"f\":\"a b\"}\n1")
	pipe.HSet(t.Context(), key+"meta", "j", `5 0 0 0 0 - {"cause":"flow-disabled"}`, "other", `5 1 1 0 0 - {"cause":"permanent"}`)
	pipe.ZAdd(t.Context(), key+"dead", redis.Z{Member: "j", Score: 1}, redis.Z{Member: "other", Score: 2})
	must.Get(pipe.Exec(t.Context()))(t)
	view, _ := ops.do("GET", "/v1/buckets/flowing/flow?flow=a+b", "").want(200, "").json["disabled"].(map[string]any)
	if view["since"] != "2026-07-05T05:20:00.123456Z" || view["reason"] != "gone" {
		t.Errorf("it is shown as %v", view)
	}
	ops.do("POST", "/v1/buckets/flowing/flow/enable?flow=a+b", "").want(200, "").lacks("disabled")
	redriven, _ := ops.do("POST", "/v1/buckets/flowing/flow/enable?flow=a+b&redrive=true", "").want(200, "").json["redriven"].(map[string]any)
	if redriven["moved"] != 1.0 || redriven["full"] != 0.0 {
		t.Errorf("redriven are %v", redriven)
	}
	ops.do("POST", "/v1/buckets/flowing/flow/enable", "").want(400, "")
	ops.do("POST", "/v1/buckets/flowing/group/enable?group=a", "").want(404, "")
}
