package config

import (
	"slices"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

// What a bucket has more of than its pool is told where somebody wrote it, and not where
// it is a default.
func TestWarningsOfPools(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, `
[[pools]]
name = "vendor"
rate = "10/s"
max_in_flight = 20
[[pools]]
name = "idle"
rate = "1/s"
[[buckets]]
name = "a"
rate = "11/s"
pool = "vendor"
[[buckets]]
name = "b"
rate = "600/m"
max_in_flight = 21
webhook.timeout = "1s"
pool = "vendor"
[[buckets]]
name = "c"
rate = "1/s"
max_in_flight = 20
pool = "vendor"
`)
	want := []string{
		`buckets[0] "a".rate: 11/s is more than the 10/s of its pool "vendor", which holds`,
		`buckets[1] "b".max_in_flight: 21 is more than the 20 of its pool "vendor", which holds`,
		`pools[1] "idle": no bucket names it: it holds nothing back`,
	}
	if got := c.Warnings(); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	// Programs want one description of a pool from all its buckets.
	if c.Buckets[0].Pool != c.Buckets[1].Pool || c.Buckets[0].Pool != &c.Pools[0] || c.Pools[0].MaxInFlight != 20 {
		t.Errorf("%+v and %+v are not %+v", c.Buckets[0].Pool, c.Buckets[1].Pool, c.Pools[0])
	}
}

// A pool can be the scope of what answers change, for a bucket that is in one.
func TestScopeOfAPool(t *testing.T) {
	t.Parallel()
	const text = `
[[pools]]
name = "vendor"
rate = "10/s"
[[buckets]]
name = "a"
rate = "10/s"
webhook = { url = "https://example.com/", job_url = false }
adapt.scope = "pool"
`
	must.Equal(t, mustLoad(t, text+"pool = \"vendor\"\n").Buckets[0].Adapt.Scope, shaper.ScopePool, "the scope is")
	if _, err := load(text); err == nil || !strings.Contains(err.Error(), "the bucket is in no pool") {
		t.Errorf("without a pool: %v", err)
	}
}
