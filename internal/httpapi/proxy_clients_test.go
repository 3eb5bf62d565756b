package httpapi_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/npmtest"
)

// did is what a client of an API got for a call.
type did struct {
	Name string
	Got  any
}

// runClients has the official clients of six APIs make their calls. `make test` installs them (scripts/parsers).
func runClients(t *testing.T, env ...string) map[string][]did {
	t.Helper()
	out := npmtest.Clients(t).Output(t, filepath.Join("testdata", "clients.mjs"), env...)
	var all map[string][]did
	if err := json.Unmarshal(out, &all); err != nil || len(all) != 6 {
		t.Fatalf("%v: %s", err, out)
	}
	return all
}

// The official clients of six APIs, unchanged, get through the proxy what they get from the API: also page by page, after errors, and when they try
// again. The API sees no key of this server, and every call has passed the bucket.
func TestProxyWithOfficialClients(t *testing.T) {
	t.Parallel()
	p := newProxyRig(t, keyOf("ours", []string{"*"}, apikey.RoleEnqueue))
	vendor := newVendor()
	p.answerWith(vendor.serve)
	direct := runClients(t, "BASE="+p.apiURL+"/base", "KEY="+vendorKey)
	want := vendor.reset()
	proxied := runClients(t, "BASE="+p.http.URL+"/v1/proxy/api", "KEY=ours")
	got := vendor.reset()
	must.Equal(t, cmp.Diff(direct, proxied), "", "directly (-) and by the proxy (+)")
	for _, call := range proxied["stripe"] {
		if slices.Contains([]string{"409", "500", "503", "cut"}, call.Name) && call.Got != 2.0 {
			t.Errorf("stripe after %s: %v, want the answer to its second try", call.Name, call.Got)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" || len(want) < 60 {
		t.Errorf("calls of the API, directly (-) and by the proxy (+): %s", diff)
	}
	for _, call := range p.called()[len(want):] {
		if call.Header.Get("Authorization") != "Bearer "+vendorKey || call.URL.Query().Get("fixed") != "1" {
			t.Errorf("%s %s does not come from here: %v", call.Method, call.RequestURI, call.Header)
		}
		for name, values := range call.Header {
			if strings.Contains(strings.Join(values, " "), "ours") {
				t.Errorf("%s %s has our key in %s", call.Method, call.RequestURI, name)
			}
		}
	}
}
