package cli_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
)

// Limits are looked at and changed. Whoever only looks, with an older file, changes nothing.
func TestLimitCommands(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	limits := func(limit string) string {
		return fmt.Sprintf("[redis]\nurl = %q\ntimeout = \"10s\"\n[[limits]]\nname = \"per-caller\"\nper = [\"caller\"]\nlimit = %q\n[limits.tiers]\npro = \"9/m\"\n", server.URL(), limit) +
			"[[keys]]\nname = \"pro\"\ntier = \"pro\"\nroles = [\"check\"]\nsha256 = \"" + strings.Repeat("0", 64) + "\"\n" +
			"[[buckets]]\nname = \"webhooks\"\nrate = \"50/s\"\nlimits = [\"per-caller\"]\nwebhook.url = \"https://a.example/\"\n"
	}
	s := &site{redis: server.Client(), env: writeConfig(t, limits("5/m"))}
	older := &site{redis: server.Client(), env: writeConfig(t, limits("7/m"))}
	owner := must.Get(admission.NewLimiter(admission.LimiterConfig{Redis: s.redis, Timeout: patience, Limits: []admission.Limit{{
		Name: "per-caller", Per: []string{admission.PerCaller}, Limit: rateOf(t, "5/m"), Tiers: map[string]admission.Rate{"pro": rateOf(t, "9/m")},
	}}}))(t)
	t.Cleanup(owner.Close)
	allows := func(want int) {
		t.Helper()
		n := 0
		for range 20 {
			d := must.Get(owner.AskKey(t.Context(), "per-caller", "", t.Name()+fmt.Sprint(want), 1))(t)
			if d.Allowed {
				n++
			}
		}
		must.Equal(t, n, want, "passed")
	}
	s.run(t, "dispatcher limit refusals per-caller").want(t, 0, `limit "per-caller" refused nobody in the last ten minutes`)
	s.run(t, "dispatcher limit refusals per-caller --json").want(t, 0, `"callers": []`)
	allows(5)
	for _, looks := range []*site{s, older} {
		looks.run(t, "dispatcher limit list").want(t, 0, "per-caller  5/m     caller  token_bucket  -")
		looks.run(t, "dispatcher limit show per-caller").want(t, 0, "tier           pro: 9/m", "without Redis  closed", "caller: the name of the API key")
	}
	older.run(t, "dispatcher limit set per-caller --limit 3/m").want(t, 0, "limit per-caller allows 3/m")
	allows(3)
	s.run(t, "dispatcher limit list").want(t, 0, "changed by an operator; configured: 5/m")
	s.run(t, "dispatcher limit set per-caller --burst 2 --mode shadow --tier pro=1/m").want(t, 0, "limit per-caller allows 3/m, burst 2, in shadow mode: it refuses nothing\nto go back to the configuration: `dispatcher limit reset per-caller`\n")
	allows(20)
	s.run(t, "dispatcher limit list").want(t, 0, "shadow: refuses nothing")
	s.run(t, "dispatcher limit reset per-caller").want(t, 0, "limit per-caller allows 5/m")
	s.run(t, "dispatcher limit reset per-caller").want(t, 0, "allows 5/m")
	s.run(t, "dispatcher limit show per-caller --json").want(t, 0, `"limit": "5/m"`)

	s.run(t, "dispatcher limit set per-caller").want(t, 2, "nothing is changed")
	s.run(t, "dispatcher limit set per-caller --limit often").want(t, 2, `limit "per-caller"`, `"often"`)
	s.run(t, "dispatcher limit set per-caller --burst 0").want(t, 2, "--burst 0")
	s.run(t, "dispatcher limit set per-caller --tier gold=1/m").want(t, 2, "gold")
	s.run(t, "dispatcher limit show other").want(t, 4, `limit "other" is not configured`)
}

func rateOf(t *testing.T, text string) admission.Rate {
	t.Helper()
	rate := must.Get(admission.ParseRate(text))(t)
	return rate
}
