package config

import (
	"slices"
	"strings"
	"testing"
)

func TestChanges(t *testing.T) {
	t.Parallel()
	const a = "[[limits]]\nname = \"a\"\nlimit = \"5/m\"\n"
	const b = "[[limits]]\nname = \"b.c\"\nlimit = \"5/m\"\nalgorithm = \"fixed_window\"\n"
	key := "[[keys]]\nname = \"k\"\nsha256 = \"" + strings.Repeat("a", 64) + "\"\nroles = [\"check\"]\ntier = \"pro\"\n"
	pro := key + a + "tiers = { pro = \"9/m\" }\n"
	const pool = "[[pools]]\nname = \"v\"\nrate = \"9/s\"\n"
	hooks := "[[buckets]]\nname = \"hooks\"\nrate = \"5/s\"\nflow.key = \"job\"\n"
	const signed = "[[buckets]]\nname = \"signed\"\nrate = \"5/s\"\nwebhook = { url = \"https://h/\", secrets = [\"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"] }\n"
	const day = "[[buckets.calendar]]\nfrom = \"08:00\"\nto = \"20:00\"\nrate = \"7/s\"\n"
	night := hooks + day + "[[buckets.calendar]]\nfrom = \"22:00\"\nto = \"06:00\"\nrate = \"9/s\"\n"
	const hook = "[[hooks]]\nevents = [\"job.dead\"]\nbucket = \"signed\"\nurl = \"https://h/a\"\n"
	for name, test := range map[string]struct {
		before, after string
		want          []Change
	}{
		"nothing":           {a, a + "\n# a comment\n", nil},
		"the order":         {a + b, b + a, nil},
		"a scalar":          {"", "[log]\nlevel = \"warn\"\n", []Change{{"log.level", "log.level"}}},
		"a value":           {a + b, b + strings.Replace(a, "5/m", "6/m", 1), []Change{{`limits "a".burst`, "limits.burst"}, {`limits "a".limit`, "limits.limit"}}},
		"a table came":      {a, a + b, []Change{{`limits "b.c"`, "limits"}}},
		"a table went":      {a + b, a, []Change{{`limits "b.c"`, "limits"}}},
		"a flow's rate":     {hooks + "flow.rate = \"1/s\"\n", hooks + "flow.rate = \"2/s\"\n", []Change{{`buckets "hooks".flow.rate`, "buckets.flow.rate"}}},
		"a group's rate":    {hooks + "group = { key = \"job\", rate = \"1/s\" }\n", hooks + "group = { key = \"job\", rate = \"2/s\" }\n", []Change{{`buckets "hooks".group.rate`, "buckets.group.rate"}}},
		"a pool's rate":     {pool, strings.Replace(pool, "9/s", "8/s", 1), []Change{{`pools "v".rate`, "pools.rate"}}},
		"a calendar's line": {night, strings.Replace(night, "7/s", "8/s", 1), []Change{{`buckets "hooks".calendar[0].rate`, "buckets.calendar.rate"}}},
		"a hook's URL":      {signed + hook, signed + strings.Replace(hook, "h/a", "h/b", 1), []Change{{`hooks[0].url`, "hooks.url"}}},
		"a bucket's pool":   {pool + hooks, pool + strings.Replace(hooks, "flow", "pool = \"v\"\nflow", 1), []Change{{`buckets "hooks".pool`, "buckets.pool"}}},
		"a tier":            {pro, strings.Replace(pro, "9/m", "10/m", 1), []Change{{`limits "a".tiers.pro`, "limits.tiers.pro"}}},
		"a tier and a key":  {a, pro, []Change{{`keys "k"`, "keys"}, {`limits "a".tiers.pro`, "limits.tiers.pro"}}},
		"a secret's digest": {pro, strings.Replace(pro, "aa", "bb", 1), []Change{{`keys "k".sha256`, "keys.sha256"}}},
		"a password":        {"[redis]\npassword = \"a\"\n", "[redis]\npassword = \"b\"\n", []Change{{"redis.password", "redis.password"}}},
		"the same password": {"[redis]\npassword = \"a\"\n", "[redis]\npassword = \"a\"\n", nil},
		"a URL's password":  {"[redis]\nurl = \"redis://:a@h\"\n", "[redis]\nurl = \"redis://:b@h\"\n", []Change{{"redis.url", "redis.url"}}},
		"a signing secret":  {signed, strings.Replace(signed, "LaSw", "LaSx", 1), []Change{{`buckets "signed".webhook.secrets`, "buckets.webhook.secrets"}}},
	} {
		if got := Changes(mustLoad(t, test.before), mustLoad(t, test.after)); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}
