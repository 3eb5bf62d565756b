package cli_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestGroupCommands(t *testing.T) {
	t.Parallel()
	s := partedSite(t, true, "acme/one", "acme/two", "acme/two", "b/one")
	s.run(t, "dispatcher group list tenants").want(t, 0, "GROUP  WAITING  IN FLIGHT", "acme   3", "b      1")
	s.run(t, "dispatcher flow list tenants").want(t, 0, "GROUP  FLOW  WAITING", "acme   two   2", "acme   one   1", "b      one   1")
	if out := s.run(t, "dispatcher flow list tenants --group b"); strings.Contains(out.out, "acme") {
		t.Errorf("flows of another group are listed:\n%s", out.out)
	}
	s.run(t, "dispatcher group list tenants --limit 1").want(t, 0, "there are more than 1 groups")
	s.run(t, "dispatcher bucket show tenants").want(t, 0, "groups      2 groups with jobs, or with jobs lately; 2 of them have something to send", "flows       3 flows")
	s.run(t, "dispatcher group pause tenants acme --reason leak").want(t, 0, "paused: acme")
	s.run(t, "dispatcher group show tenants acme").want(t, 0, "group      acme", "waiting    3", "by user", ": leak")
	s.run(t, "dispatcher group show tenants acme --json").want(t, 0, `"group": "acme"`, `"reason": "leak"`, `"waiting": 3`)
	s.run(t, "dispatcher group set tenants acme --rate 5/s --weight 3 --max-in-flight 0").
		want(t, 0, "rate           5/s", "weight         3", "max_in_flight  0")
	s.run(t, "dispatcher group reset tenants acme rate --json").want(t, 0, `"weight": 3`)
	s.run(t, "dispatcher group list tenants --json").want(t, 0, `"max_in_flight": 0`, `"weight": 3`)
	s.run(t, "dispatcher group reset tenants acme").want(t, 0, "reset: acme")
	s.run(t, "dispatcher group reset tenants acme").want(t, 0, "had no settings of its own: acme")
	s.run(t, "dispatcher group resume tenants acme").want(t, 0, "resumed: acme")
	s.run(t, "dispatcher group resume tenants acme").want(t, 0, "was not paused: acme")
	s.run(t, "dispatcher group show tenants acme").want(t, 0, "turn       ")

	s.run(t, "dispatcher flow pause tenants two --group acme").want(t, 0, "paused: two")
	s.run(t, "dispatcher flow show tenants two --group acme").want(t, 0, "group      acme", "flow       two", "paused ")
	s.run(t, "dispatcher flow show tenants two --group b --json").want(t, 0, `"group": "b"`, `"waiting": 0`)
	s.run(t, "dispatcher flow set tenants two --group acme --url https://a.example/").want(t, 0, "https://a.example/", "\nto go back to the settings of the bucket: `dispatcher flow reset tenants two url --group acme`\n")
	s.run(t, "dispatcher flow purge tenants two --group acme --yes --json").want(t, 0, `"group": "acme"`, `"flow": "two"`, `"purged": 2`)
	s.run(t, "dispatcher group purge tenants acme").want(t, 2, "drops every job of the group that waits", "--yes")
	s.run(t, "dispatcher group purge tenants acme --yes --json").want(t, 0, `"group": "acme"`, `"purged": 1`)
	s.run(t, "dispatcher group purge tenants b --yes").want(t, 0, "purged: 1 job")
	s.run(t, "dispatcher group list tenants").want(t, 0, "has no groups that have jobs")

	s.run(t, "dispatcher group set tenants acme").want(t, 2, "nothing is changed: give --rate")
	s.run(t, "dispatcher group set tenants acme --rate 0/s").want(t, 2, "--rate", "paused: pause it")
	s.run(t, "dispatcher group set tenants acme --url https://a.example/").want(t, 2, "unknown flag: --url")
	s.run(t, "dispatcher group reset tenants acme url").want(t, 2, "url: is no setting of a group: want rate, burst")
	s.run(t, "dispatcher flow show tenants two").want(t, 2, "flows are in groups: say with --group")
	s.run(t, "dispatcher group list webhooks").want(t, 2, "the bucket has no groups: it is configured without [buckets.group]. For groups that jobs name, configure it with [buckets.group] and key = ")
	s.run(t, "dispatcher group list nosuch").want(t, 4, `unknown bucket "nosuch"`)
	s.run(t, "dispatcher group show tenants").want(t, 2, "GROUP is missing")

	plain := partedSite(t, false, "acme", "acme", "b")
	plain.run(t, "dispatcher flow show tenants acme --group acme").want(t, 2, "the bucket has no groups")
	plain.run(t, "dispatcher group show tenants acme").want(t, 2, "the bucket has no groups")
}

// A job that is sent says its flow and its group.
func TestSendNamesTheGroup(t *testing.T) {
	t.Parallel()
	var sent struct{ Flow, Group string }
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, `{"status":429,"code":"group-full","detail":"group \"acme\" is full"}`)
	}))
	t.Cleanup(server.Close)
	command(t.Context(), nil, "", "producer send b 1 --server "+server.URL+" --flow one --group acme").
		want(t, 3, `group-full: group "acme" is full`)
	if sent.Flow != "one" || sent.Group != "acme" {
		t.Errorf("flow %q of group %q was sent", sent.Flow, sent.Group)
	}
}
