package cli_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/stored"
	"github.com/tundish-io/tundish/shaper"
)

// usedSite has the use of models of three days, and a key of the caller "acme".
func usedSite(t *testing.T) *site {
	t.Helper()
	s := newSite(t)
	_, table := newKey(t, "acme --role enqueue --bucket *")
	path := strings.TrimPrefix(s.env[0], "TUNDISH_CONFIG=")
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, append(text, table...), 0o600)
	}
	must.OK(t, err)
	acme, today := shaper.CallerMark("acme"), time.Now().UTC().Format("20060102")
	for day, fields := range map[string][]any{
		"20260101": {acme + " gpt-4o g1:ga", "3 1200 90", "abcdefg o%2F3 g1:gb\n", "1 10 10"},
		"20260102": {acme + " gpt-4o g1:ga", "1 400 30", " gpt-4o g1:hb", "1 500 1", "* gpt-4o *", "1 6 1", "* * *", "1 2 1"},
		"20260103": {" claude>gpt-5 ", "1 100 10", "+ claude>gpt-5 ", "890", " claude ", "1 5 5", "+ claude ", "-10"},
		today:      {" gpt-4o ", "1 7 8"},
	} {
		must.OK(t, s.redis.HSet(t.Context(), stored.Key("webhooks", "use:")+day, fields...).Err())
	}
	return s
}

func TestUsage(t *testing.T) {
	t.Parallel()
	s := usedSite(t)
	const days = " --from 2026-01-01 --to 2026-01-02"
	for words, want := range map[string]string{
		days: `
DAY         MODEL    CALLS  INPUT  OUTPUT  CHARGED
2026-01-02  gpt-4o   3      906    32      938
2026-01-02  (other)  1      2      1       3
2026-01-01  gpt-4o   3      1200   90      1290
2026-01-01  o/3      1      10     10      20
total                8      2118   133     2251
`,
		days + " --by flow": `
GROUP    FLOW     CALLS  INPUT  OUTPUT  CHARGED
g        a        4      1600   120     1720
h        b        1      500    1       501
g        b        1      10     10      20
(other)  (other)  2      8      2       10
total             8      2118   133     2251
`,
		days + " --by caller": `
CALLER   CALLS  INPUT  OUTPUT  CHARGED
acme     4      1600   120     1720
-        1      500    1       501
abcdefg  1      10     10      20
(other)  2      8      2       10
total    8      2118   133     2251
`,
		days + " --by group,day --caller acme": `
GROUP  DAY         CALLS  INPUT  OUTPUT  CHARGED
g      2026-01-02  1      400    30      430
g      2026-01-01  3      1200   90      1290
total              4      1600   120     1720
`,
		" --from 2026-01-03 --to 2026-01-03 --by model": `
MODEL               CALLS  INPUT  OUTPUT  CHARGED
claude (for gpt-5)  1      100    10      1000
claude              1      5      5       0
total               2      105    15      1000
`,
		" --from 2026-01-03 --to 2026-01-03 --by day --model claude": `
DAY         CALLS  INPUT  OUTPUT  CHARGED
2026-01-03  2      105    15      1000
total       2      105    15      1000
`,
		" --days 2 --by model": `
MODEL   CALLS  INPUT  OUTPUT  CHARGED
gpt-4o  1      7      8       15
total   1      7      8       15
`,
		" --by flow": `
FLOW   CALLS  INPUT  OUTPUT  CHARGED
-      1      7      8       15
total  1      7      8       15
`,
	} {
		r := s.run(t, "dispatcher usage webhooks"+words)
		r.want(t, 0)
		must.Equal(t, cmp.Diff(want[1:], r.out), "", "%s (-want +printed)", words)
	}
	s.run(t, "dispatcher usage webhooks --json"+days+" --flow a --model gpt-4o --group g").
		want(t, 0, `"by": [`, `"day": "2026-01-01"`, "  \"total\": {\n    \"calls\": 4,\n    \"input\": 1600,\n    \"output\": 120,\n    \"charged\": 1720\n  }")
	s.run(t, "dispatcher usage webhooks --flow nosuch").want(t, 0, `bucket "webhooks": no such call of a language model is known from 20`)
	s.run(t, "dispatcher usage nosuch").want(t, 4, `unknown bucket "nosuch"`)
	for words, want := range map[string]string{
		"":                            "BUCKET",
		"webhooks --days 0":           "want --days of 1 to 31",
		"webhooks --days 32":          "want --days of 1 to 31",
		"webhooks --days 1" + days:    "--days does not go with --from and --to",
		"webhooks --by week":          `bucket "webhooks": by: "week": want some of [day model flow group caller]`,
		"webhooks --from 1 --to x":    "want a day such as 2026-03-01",
		"webhooks --from 2026-01-01":  "from: want at most 31 days",
		"webhooks --model":            "flag needs an argument",
		"webhooks --days 3 --days x3": "invalid argument",
	} {
		s.run(t, "dispatcher usage "+words).want(t, 2, want)
	}
}
