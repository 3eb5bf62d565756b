package cli_test

import "testing"

// A typo in `flow pause` or `flow set` changes nothing, and says so; --create says that it is meant.
func TestUnknownFlowsAndGroups(t *testing.T) {
	t.Parallel()
	plain, grouped := partedSite(t, false, "acme"), partedSite(t, true, "acme/one")
	for _, of := range []struct {
		on         *site
		kind, args string
	}{
		{plain, "flow", "acmee"}, {grouped, "flow", "one --group b"}, {grouped, "group", "acmee"},
	} {
		run := func(words string) result { return of.on.run(t, "dispatcher "+of.kind+" "+words+" tenants "+of.args) }
		for _, change := range []string{"pause", "set --weight 3"} {
			run(change).want(t, 4, `bucket "tenants" has no `+of.kind+` "`, "dispatcher "+of.kind+" list tenants", "--create")
		}
		run("resume").want(t, 0, "was not paused")
		run("set --weight 3 --create").want(t, 0, "weight ")
		run("set --weight 4").want(t, 0, "weight ") // it has settings now
		run("reset").want(t, 0, "reset: ")
		run("pause --create").want(t, 0, "paused: ")
		run("pause").want(t, 0, "paused: ")
	}
}
