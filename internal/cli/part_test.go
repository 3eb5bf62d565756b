package cli_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/producer"
)

// partedSite has a bucket with flows that left the configuration, with a job of each name: that
// of a flow or, where flows are in groups, of a group and a flow, with a slash between.
func partedSite(t *testing.T, inGroups bool, names ...string) *site {
	t.Helper()
	s := newSite(t)
	b := bucket(t, "tenants")
	flow := shaper.DefaultFlowSettings()
	flow.Key = shaper.FlowKeyJob
	b.Flow = &flow
	if inGroups {
		group := shaper.DefaultGroupSettings()
		group.Key = shaper.FlowKeyJob
		b.Group = &group
	}
	client := must.Get(producer.New(producer.Config{Redis: s.redis, Buckets: []shaper.Bucket{b}, Timeout: patience}))(t)
	for _, name := range names {
		group, flow, found := strings.Cut(name, "/")
		if !found {
			group, flow = "", name
		}
		receipts, err := client.Enqueue(t.Context(), shaper.Job{Bucket: "tenants", Group: group, Flow: flow, Payload: []byte("1")})
		if err != nil || receipts[0].Refusal != nil {
			t.Fatal(receipts, err)
		}
	}
	return s
}

func TestFlowCommands(t *testing.T) {
	t.Parallel()
	s := partedSite(t, false, "acme", "acme", "b")
	s.run(t, "dispatcher flow list tenants").want(t, 0, "FLOW  WAITING", "acme  2", "b     1")
	s.run(t, "dispatcher flow list tenants --match cm").want(t, 0, "acme  2")
	s.run(t, "dispatcher flow list tenants --match none").want(t, 0, "no flow that is as the flags ask")
	s.run(t, "dispatcher job list tenants --state waiting --since 1h --flow b").want(t, 0, "queued")
	s.run(t, "dispatcher job list tenants --state waiting --until 1h").want(t, 0, "has no such job")
	s.run(t, "dispatcher job list tenants --state later").want(t, 0, "has no such job")
	s.run(t, "dispatcher job list tenants --until soon").want(t, 2, "--until", "such as 90m")
	s.run(t, "dispatcher flow list tenants --limit 1").want(t, 0, "there are more than 1 flows")
	s.run(t, "dispatcher flow pause tenants acme --reason leak").want(t, 0, "paused: acme")
	s.run(t, "dispatcher flow show tenants acme").want(t, 0, "waiting    2", "by user", ": leak")
	s.run(t, "dispatcher flow show tenants acme --json").want(t, 0, `"reason": "leak"`, `"waiting": 2`)
	s.run(t, "dispatcher flow set tenants acme --rate 5/s --weight 3 --max-in-flight 0 --url https://a.example/token --header X-A:b").
		want(t, 0, "rate           5/s", "weight         3", "max_in_flight  0", "url            https://a.example/***", "headers        X-A")
	runArgs(t.Context(), s.env, "", "dispatcher", "flow", "set", "tenants", "it's one", "--create", "--weight", "2").
		want(t, 0, "\nto go back to the settings of the bucket: `dispatcher flow reset tenants 'it'\\''s one' weight`\n")
	runArgs(t.Context(), s.env, "", "dispatcher", "flow", "reset", "tenants", "it's one", "weight").want(t, 0, "reset: it's one")
	s.run(t, "dispatcher flow reset tenants acme rate url --json").want(t, 0, `"weight": 3`)
	s.run(t, "dispatcher flow list tenants --json").want(t, 0, `"max_in_flight": 0`, `"X-A"`)
	s.run(t, "dispatcher flow reset tenants acme").want(t, 0, "reset: acme")
	s.run(t, "dispatcher flow reset tenants acme").want(t, 0, "had no settings of its own: acme")
	s.run(t, "dispatcher flow resume tenants acme").want(t, 0, "resumed: acme")
	s.run(t, "dispatcher flow resume tenants acme").want(t, 0, "was not paused: acme")
	s.run(t, "dispatcher flow show tenants acme").want(t, 0, "turn       ")
	runArgs(t.Context(), s.env, "", "dispatcher", "flow", "set", "tenants", "acme", "--budgets", "4000 tokens/d").want(t, 0, "4000 tokens/d")
	s.run(t, "dispatcher flow show tenants acme").want(t, 0, "4000 tokens/d: 0 charged, of that 0 in flight; 4000 free")
	s.run(t, "dispatcher flow show tenants acme --json").want(t, 0, `"budgets": [`, `"free": 4000`)
	s.run(t, "dispatcher flow reset tenants acme budgets").want(t, 0, "acme")
	s.run(t, "dispatcher flow purge tenants acme").want(t, 2, "--yes")
	s.run(t, "dispatcher flow purge tenants acme --dry-run").want(t, 0, "a purge would drop 2 waiting jobs; nothing is changed")
	s.run(t, "dispatcher flow purge tenants acme --yes --keep-later").want(t, 0, "purged: 2 jobs")
	s.run(t, "dispatcher flow purge tenants b --yes --json").want(t, 0, `"flow": "b"`, `"purged": 1`)
	s.run(t, "dispatcher flow list tenants").want(t, 0, "has no flows that have jobs")

	s.run(t, "dispatcher flow set tenants acme").want(t, 2, "nothing is changed: give --rate")
	s.run(t, "dispatcher flow set tenants acme --rate 0/s").want(t, 2, "--rate", "paused: pause it")
	s.run(t, "dispatcher flow set tenants acme --weight 1001").want(t, 2, "--weight", "want 1 to 1000")
	s.run(t, "dispatcher flow set tenants acme --header nothing").want(t, 2, "--header")
	s.run(t, "dispatcher flow set tenants acme --create --header Host:b").want(t, 2, "headers.Host")
	s.run(t, "dispatcher flow set tenants acme --create --url https://u:p@a.example/").want(t, 2, "url: holds user information")
	s.run(t, "dispatcher flow reset tenants acme name").want(t, 2, "is no setting of a flow")
	s.run(t, "dispatcher flow pause webhooks acme").want(t, 2, "the bucket has no flows")
	s.run(t, "dispatcher flow list nosuch").want(t, 4, `unknown bucket "nosuch"`)
	s.run(t, "dispatcher flow show tenants").want(t, 2, "FLOW is missing")
}

// The flags of `flow set` and `group set` are the settings that one may have of its own.
func TestFlagsOfParts(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	flow, group := s.run(t, "dispatcher flow set --help").out, s.run(t, "dispatcher group set --help").out
	for _, name := range shaper.FlowSettingNames() {
		flag := "  --" + strings.ReplaceAll(string(name), "_", "-") + " "
		if name == shaper.FlowHeaders || name == shaper.FlowSecrets { // one at a time
			flag = strings.TrimSuffix(flag, "s ") + " "
		}
		if !strings.Contains(flow, flag) {
			t.Errorf("flow set has no flag%s", flag)
		}
		must.Equal(t, slices.Contains(shaper.GroupSettingNames(), name), strings.Contains(group, flag), "a group may have %s, and group set does not say so", name)
	}
	for _, text := range []string{"--weight number ", "number of departures in each of its turns", "0: the bucket's bound only"} {
		if !strings.Contains(group, text) {
			t.Errorf("group set does not say %q:\n%s", text, group)
		}
	}
}
