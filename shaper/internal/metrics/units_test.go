package metrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

// The units of a bucket's budgets are shown from the start. What was reserved is what was used and given back, less what is owed.
func TestUnits(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	m := must.Get(New(reg))(t)
	m.AddBucket("without")
	for _, unit := range []string{"calls", "tokens", "tokens"} { // two budgets
		m.AddUnit("b", unit)
	}
	m.CountReserved("b", shaper.Units{"tokens": 100})
	m.CountUsed("b", shaper.Units{"tokens": 30}, shaper.Units{"tokens": 50})
	m.CountUsed("b", shaper.Units{"tokens": 70}, shaper.Units{"tokens": 0})
	m.CountUsed("b", shaper.Units{"tokens": 0}, shaper.Units{"tokens": -5})
	const help = `
# HELP tundish_units_total Units of budgets: reserved by departures; and of departures whose outcome is settled, used, given back because less was used, and owed because more was.
# TYPE tundish_units_total counter
`
	tokens := `
tundish_units_total{bucket="b",kind="given_back",unit="tokens"} 70
tundish_units_total{bucket="b",kind="owed",unit="tokens"} 20
tundish_units_total{bucket="b",kind="reserved",unit="tokens"} 100
tundish_units_total{bucket="b",kind="used",unit="tokens"} 50
`
	calls := `
tundish_units_total{bucket="b",kind="given_back",unit="calls"} 0
tundish_units_total{bucket="b",kind="owed",unit="calls"} 0
tundish_units_total{bucket="b",kind="reserved",unit="calls"} 0
tundish_units_total{bucket="b",kind="used",unit="calls"} 0
`
	want := func(series string) {
		t.Helper()
		if err := testutil.GatherAndCompare(reg, strings.NewReader(help+series), "tundish_units_total"); err != nil {
			t.Error(err)
		}
	}
	want(calls + tokens)
	m.RemoveUnit("b", "calls")
	want(tokens)
	m.RemoveBucket("b")
	must.Equal(t, must.Get(testutil.GatherAndCount(reg, "tundish_units_total"))(t), 0, "series")
	var none *Metrics
	none.AddUnit("b", "tokens")
	none.RemoveUnit("b", "tokens")
	none.CountReserved("b", shaper.Units{"tokens": 1})
	none.CountUsed("b", shaper.Units{"tokens": 1}, nil)
}
