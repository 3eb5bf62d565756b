package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/internal/stored"
)

// A schedule is made by flags or from a file, changed, shown and removed; what is wrong is said with its key.
func TestScheduleSetAndRemove(t *testing.T) {
	t.Parallel()
	admin, table := newKey(t, "root --role admin --bucket *")
	server := newOperatedServer(t, "dispatcher", table)
	env := []string{"TUNDISH_REDIS_URL=redis://127.0.0.1:1", "TUNDISH_KEY=" + admin}
	run := func(stdin string, args ...string) result {
		t.Helper()
		return runArgs(t.Context(), env, stdin, append(append([]string{"dispatcher", "schedule"}, args...), "--server", server.url)...)
	}
	const line = "0 2 * * *"
	run("", "set", "made").want(t, 2, "")
	if r := run("", "set", "made", "--cron", line, "--bucket", "plain", "--dry-run"); r.code != 0 || !strings.HasPrefix(r.out, "made would be set for bucket plain\nnext  ") || strings.Count(r.out, "next") != 5 {
		t.Errorf("dry run: %+v", r)
	}
	run("", "show", "made").want(t, 4, "")
	run("", "set", "made", "--cron", line, "--bucket", "plain", "--payload", `{"a": "<1>"}`, "--header", "X-A: b").want(t, 0, "set: made for bucket plain")
	run("", "set", "made", "--cron", line, "--bucket", "plain", "--payload", `{"a": "<1>"}`, "--header", "X-A: b").want(t, 0, "was so already: made")
	file := filepath.Join(t.TempDir(), "made.json")
	must.OK(t, os.WriteFile(file, []byte(`{"bucket":"plain","cron":"0 2 * * *","payload":{"a": "<1>"},"headers":{"X-A":["b"]}}`), 0o600))
	run("", "set", "made", "--cron", "0 9 1-7 * MON", "--timezone", "EST", "--bucket", "plain", "--dry-run").want(t, 0, "either day fires", "for clocks that change, use America/New_York")
	run("", "set", "made", "--file", file).want(t, 0, "was so already: made") // so the payload of --payload kept its bytes
	run(`{ "cron": "@hourly", "bucket": "plain" }`, "set", "made", "--file", "-", "--dry-run").want(t, 0, "made would be set")
	run(`{ "cron": "@hourly", "bucket": "plain" }`, "set", "made", "--file", "-").want(t, 0, "set: made")
	if r := run("", "show", "made"); r.code != 0 || !strings.Contains(r.out, "api") || !strings.Contains(r.out, "by key root at ") {
		t.Errorf("show: %+v", r)
	}
	for _, c := range []struct {
		stdin, args, want string
		code              int
	}{
		{"", "set made --cron 0 --bucket plain", `schedule "made": cron: "0": has 1 fields`, 2},
		{"", "set made --cron @daily --bucket plain --timezone Mars/Olympus", `schedule "made": timezone: "Mars/Olympus": is unknown`, 2},
		{"", "set made --cron @daily --bucket plain --timezone IST", "write Asia/Kolkata, Europe/Dublin or Asia/Jerusalem", 2},
		{`{"bucket":"plain","cron":"0 12 ? * 2-6 *"}`, "set made --file -", `EventBridge, with a year: write "0 12 * * MON-FRI"`, 2},
		{"", "set made --cron @daily --bucket nosuch", "unknown bucket", 4},
		{"", "set made --cron @daily --bucket flowing --flow acme", `is in bucket "plain" (api) already`, 1},
		{"", "set nightly --cron @daily --bucket plain", `is in the configuration, for bucket "plain"`, 1},
		{"", "set made --cron @daily --bucket plain --payload {", "--payload: is not JSON", 2},
		{"[1]", "set made --file -", "want a JSON object", 2},
		{"", "set made --file - --cron @daily", "leave --cron and --bucket out", 2},
		{"", "set made --file /nosuch", "--file: open /nosuch", 2},
		{"", "remove nightly --yes", `is in the configuration, for bucket "plain"`, 1},
		{"", "remove made", "confirm with --yes", 2},
		{"", "remove nosuch --yes", "unknown schedule", 4},
	} {
		if r := run(c.stdin, strings.Fields(c.args)...); r.code != c.code || !strings.Contains(r.err, c.want) {
			t.Errorf("%s: %+v, want %d, %s", c.args, r, c.code, c.want)
		}
	}
	run("", "remove", "made", "--dry-run").want(t, 0, `would remove schedule made of bucket plain, "@hourly" in UTC, which was made by key root and has fired 0 times`)
	run("", "remove", "made", "--yes").want(t, 0, "removed: made")
	run("", "show", "made").want(t, 4, "")
}

// Without --server the commands go to Redis. The history tells what became of each job, and the list where a schedule comes from.
func TestScheduleHistory(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newPlan(t, server.URL(), `rate = "1/h"`)
	run := func(words ...string) result {
		t.Helper()
		return runArgs(t.Context(), p.env, "", append([]string{"dispatcher", "schedule"}, words...)...)
	}
	run("set", "made", "--cron", "@every 1h", "--bucket", "webhooks", "--payload", "{}").want(t, 2, `schedule "made": url: is missing, and the bucket has none`)
	run("set", "made", "--cron", "@every 1h", "--bucket", "webhooks", "--payload", "{}", "--url", "https://example.com/").want(t, 0, "set: made for bucket webhooks")
	client, key := server.Client(), stored.Key("webhooks", "")
	client.HSet(t.Context(), key+"schedules", "made:runs", `{"at":"3000000","now":"4000000","outcome":"skipped","job":"waits","reason":"overlap"}
{"at":"2000000","now":"2500000","outcome":"fired","job":"waits"}
{"at":"1000000","now":"1000000","outcome":"fired","job":"gone"}`)
	client.HSet(t.Context(), key+"body", "waits", "0 1 00000000000cn001 \n1")
	run("show", "made").want(t, 0,
		"Thu 1970-01-01 00:00:03 UTC skipped 1.000s late, job waits (overlap)\n",
		"Thu 1970-01-01 00:00:02 UTC fired 0.500s late, job waits, which is queued\n",
		"Thu 1970-01-01 00:00:01 UTC fired 0.000s late, job gone, which has ended: how is no longer known\n")
	run("list").want(t, 0, "SOURCE", "api", "no dispatcher has seen it yet")
}
