package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

const responseConfig = `
[[buckets]]
name = "shop"
rate = "1/s"
worker = "http"
[buckets.http]
base_url = "https://api.example.com"
[[buckets.responses]]
status = ["200"]
pointer = "/errors/*/extensions/code"
value = "THROTTLED"
outcome = "hold"
wait_default = "2s"
`

func TestResponseTry(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "config.toml")
	must.OK(t, os.WriteFile(file, []byte(responseConfig), 0o600))
	try := func(body string, args ...string) result {
		return runArgs(t.Context(), nil, body, append([]string{"dispatcher", "response", "try", "shop", "--config", file}, args...)...)
	}
	try(`{"errors":[{"extensions":{"code":"THROTTLED"}}]}`, "--body", "-").want(t, 0,
		`rule       number 1: status 200, /errors/*/extensions/code = "THROTTLED"`, "job        held\n", "scope      the bucket sends nothing for 2s", "receiver   asks for less")
	try("", "--status", "403", "--header", "Retry-After: 5").want(t, 0, "rule       none fits", "job        held\n", "sends nothing for 5s")
	try("", "--status", "403").want(t, 0, "job        dead, and has spent an attempt", "scope      is not held", "(http_403)")
	r := try(`{"data":{}}`, "--body", "-", "--header", "RateLimit: \"a\";r=0;t=7", "--json")
	r.want(t, 0)
	var view struct {
		Rule         int
		Outcome      string
		HoldsScope   bool  `json:"holds_scope"`
		RetryAfterMs int64 `json:"retry_after_ms"`
	}
	if err := json.Unmarshal([]byte(r.out), &view); err != nil || view.Rule != 0 || view.Outcome != "done" || !view.HoldsScope || view.RetryAfterMs != 7000 {
		t.Errorf("%v: %s", err, r.out)
	}
	try("", "--header", "nothing").want(t, 2, `--header "nothing": want "Name: value"`)
	try("", "--status", "7").want(t, 2, "--status 7: want a status of HTTP")
	runArgs(t.Context(), nil, "", "dispatcher", "response", "try", "shops", "--config", file).want(t, 2, `no [[buckets]] has the name "shops"`, `did you mean "shop"`)
}

func TestConfigCheckJudgesRecordedResponses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "config.toml")
	must.OK(t, os.WriteFile(file, []byte(responseConfig), 0o600))
	check := func(lines string, args ...string) result {
		path := filepath.Join(dir, "responses.ndjson")
		must.OK(t, os.WriteFile(path, []byte(lines), 0o600))
		return runArgs(t.Context(), nil, "", append([]string{"dispatcher", "config", "check", "--config", file, "--responses", path}, args...)...)
	}
	const throttled = `{"bucket":"shop","status":200,"body":{"errors":[{"extensions":{"code":"THROTTLED"}}]},"outcome":"held"}`
	check(throttled+"\n\n"+`{"bucket":"shop","status":403,"headers":{"Retry-After":"5"},"outcome":"held"}`).want(t, 0,
		"is valid", `line 1: bucket "shop", by rule 1 (status 200, /errors/*/extensions/code = "THROTTLED"): held`+"\n", `line 3: bucket "shop", by the built-in rules: held`)
	check(throttled+"\n"+`{"bucket":"shop","status":200,"body":"<html>","outcome":"retry"}`).want(t, 1,
		`line 2: bucket "shop", by the built-in rules: done: WRONG, want retry`, "1 of 2 responses in")
	check(throttled, "--json").want(t, 0, `"outcome": "held"`, `"rule": 1`)
	check(`{"bucket":"shops","status":200}`).want(t, 2, "line 1 of", `did you mean "shop"`)
	check(`{"bucket":"shop","status":20}`).want(t, 2, "status 20: want a status of HTTP")
	check(`{"bucket":"shop","code":200}`).want(t, 2, `unknown field "code"`)
}
