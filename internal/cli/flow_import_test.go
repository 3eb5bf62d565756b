package cli_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// A file of customers is written by one command, which may be run twice. A fault names the line of the file, and nothing is written then.
func TestFlowImport(t *testing.T) {
	t.Parallel()
	s := partedSite(t, false, "customer-7")
	file := func(name, text string) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), name)
		must.OK(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	var lines strings.Builder
	url := "https://a.example/" + strings.Repeat("x", 2000)
	for i := range 2100 { // 4.3 MiB: two parts
		fmt.Fprintf(&lines, `{"flow":"customer-%d","weight":2,"url":"%s","secrets":["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]}`+"\n", i, url)
	}
	all := file("customers.ndjson", lines.String())
	faulty := file("faulty.ndjson", lines.String()+`{"flow":"late","weight":0}`)
	s.run(t, "dispatcher flow import tenants "+all).want(t, 0, "2100 flows set")
	s.run(t, "dispatcher flow show tenants customer-2099").want(t, 0, "weight     2", "secrets    1: 1 96ad2ccd8146")
	s.run(t, "dispatcher flow import tenants "+faulty).want(t, 2, `bucket "tenants": line 2101: weight: 0: want 1 to 1000; `, "flows set before that")
	few := file("few.ndjson", "\n"+`{"flow":"customer-7","rate":"3/s"}`)
	s.run(t, "dispatcher flow import tenants "+few+" --json").want(t, 0, `"bucket": "tenants"`, `"flows": 1`)
	s.run(t, "dispatcher flow show tenants customer-7").want(t, 0, "rate       3/s", "secrets    1: 1 96ad2ccd8146")
	s.run(t, "dispatcher flow import tenants "+file("none.ndjson", "\n")).want(t, 2, "has no lines")
	s.run(t, "dispatcher flow import tenants "+file("bad.ndjson", "{}\n{")).want(t, 2, "line 1: flow: is missing", "line 2: body: is not JSON")
	s.run(t, "dispatcher flow import tenants nowhere.ndjson").want(t, 2, "nowhere.ndjson")
	s.run(t, "dispatcher flow import nobody "+few).want(t, 4, "unknown bucket")
}

// A server that has no time to write any of the lines ends the command: to send the same lines for ever is no progress.
func TestFlowImportWithoutProgress(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"bucket":"tenants","flows":0,"more":true}`)
	}))
	defer server.Close()
	runArgs(t.Context(), nil, `{"flow":"a","weight":2}`, "dispatcher", "flow", "import", "tenants", "-", "--server", server.URL).
		want(t, 5, "had no time to write one flow", "run it again later")
}
