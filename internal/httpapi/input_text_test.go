package httpapi_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// Bodies as PowerShell, Excel and old programs send them: a byte order mark does not count, and other encodings are named.
func TestBodiesOfOtherEncodings(t *testing.T) {
	t.Parallel()
	const mark, lines = "\xef\xbb\xbf", "application/x-ndjson"
	api, store := producerAPI(t)
	api.do("POST", jobs, mark+job(`"id":"a"`)).want(202, "")
	api.do("POST", jobs+"/batch", mark+"["+job(`"id":"b"`)+"]").want(200, "").has("admitted", float64(1))
	api.do("POST", jobs+"/batch", mark+job(`"id":"c"`)+"\r\n"+mark+job(`"id":"d"`), "Content-Type", lines).want(200, "").has("admitted", float64(2))
	api.do("POST", jobs+"/batch", job(`"id":"e"`)+"\r"+job(`"id":"f"`)+"\r", "Content-Type", lines).want(200, "").has("admitted", float64(2))
	must.Equal(t, depth(t, store), 6, "jobs")
	for body, reason := range map[string]string{
		"{\n\"payload\":\n\"M\xfcller\"}":     "is not UTF-8 in line 3, at byte 3 of it: send it as UTF-8",
		"{\"payload\":\"M\xfcller\"}":         "is not UTF-8 at byte 14: send it as UTF-8",
		"\xff\xfe{\x00\"\x00p\x00":            "is UTF-16",
		"{\x00\"\x00p\x00":                    "is UTF-16",
		mark:                                  "is empty: want JSON",
		mark + mark + `{"payload":1}`:         "is not JSON",
		`{"payload":"` + mark + "\x00\xfe\"}": "is not UTF-8",
	} {
		wantReason(t, api.do("POST", jobs, body).want(400, "invalid"), reason)
	}
	wantReason(t, api.do("POST", jobs+"/batch", "\xff\xfe{\x00", "Content-Type", lines).want(400, "invalid"), "is UTF-16")
	a := api.do("POST", jobs+"/batch", job("")+"\n{\"payload\":\"M\xfcller\"}\n"+job(""), "Content-Type", lines).want(200, "")
	if got := a.statuses(); got != "202 400 202" || !strings.Contains(a.text, "is not UTF-8 at byte 14") {
		t.Errorf("%s: %s", got, a.text)
	}
}

func wantReason(t *testing.T, a *answer, reason string) {
	t.Helper()
	if text := fmt.Sprint(a.json["errors"], a.json["detail"]); !strings.Contains(text, reason) {
		t.Errorf("%s does not say %q", a.text, reason)
	}
}
