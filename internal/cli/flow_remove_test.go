package cli_test

import (
	"strings"
	"testing"
)

// A removal counts first, is confirmed, takes the pause and the settings with it, and may be run again. The audit has it once.
func TestRemoveOfAFlow(t *testing.T) {
	t.Parallel()
	s := partedSite(t, false, "acme", "b")
	s.run(t, "dispatcher flow set tenants acme --weight 2").want(t, 0)
	s.run(t, "dispatcher flow pause tenants acme").want(t, 0)
	waiting := s.run(t, "dispatcher flow show tenants acme --json").out
	s.run(t, "dispatcher flow remove tenants acme").want(t, 2, "confirm with --yes")
	s.run(t, "dispatcher flow remove tenants acme --dry-run").want(t, 0, "this would drop ", "0 dead letters, 0 kept results, its settings, pause; nothing is changed")
	if again := s.run(t, "dispatcher flow show tenants acme --json").out; again != waiting {
		t.Errorf("a dry run changed %s\nto %s", waiting, again)
	}
	s.run(t, "dispatcher flow remove tenants acme --yes --json").want(t, 0, `"own": [`, `"settings"`, `"pause"`, `"in_flight": 0`)
	if out := s.run(t, "dispatcher flow show tenants acme --json"); strings.Contains(out.out, "paused") || strings.Contains(out.out, `"weight": 2`) {
		t.Errorf("then there is %s", out.out)
	}
	s.run(t, "dispatcher flow remove tenants acme --yes").want(t, 0, "dropped: 0 waiting jobs, 0 dead letters, 0 kept results\n")
	s.run(t, "dispatcher flow remove webhooks acme --yes").want(t, 2, "the bucket has no flows")
	s.run(t, "dispatcher flow remove nowhere acme --yes").want(t, 4)
	s.run(t, "dispatcher group remove tenants acme").want(t, 2, "there is no command")
}
