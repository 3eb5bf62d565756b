package operator

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/shaper"
)

// budgetsOnly collects what a look has found of budgets.
type budgetsOnly struct{ seen collected }

func (budgetsOnly) Describe(ch chan<- *prometheus.Desc)   { describeBudgets(ch) }
func (b budgetsOnly) Collect(ch chan<- prometheus.Metric) { collectBudgets(ch, b.seen) }

func TestMetricsOfBudgets(t *testing.T) {
	t.Parallel()
	use := shaper.BudgetUse{Budget: admission.Rate{Count: 90_000, Per: time.Minute, Unit: shaper.UnitTokens}, Charged: 1200, Open: 400}
	seen := collected{
		buckets: []BucketInfo{{Name: "llm", Budgets: []shaper.BudgetUse{use}}, {Name: "hooks"}},
		pools:   []PoolDetails{{Name: "vendor", BudgetUse: []shaper.BudgetUse{use}}},
	}
	want := ""
	for _, m := range []struct{ name, help, value string }{
		{"charged", "Of a budget, charged in its window: what jobs in flight reserve, and what the others used.", "1200"},
		{"in_flight", "Of a budget, reserved by jobs in flight.", "400"},
		{"limit", "Amount of a budget of a bucket or a pool in its window, in the unit of the budget.", "90000"},
	} {
		want += "# HELP tundish_budget_" + m.name + " " + m.help + "\n# TYPE tundish_budget_" + m.name + " gauge\n"
		for _, labels := range []string{`bucket="",budget="90000 tokens/m",pool="vendor"`, `bucket="llm",budget="90000 tokens/m",pool=""`} {
			want += "tundish_budget_" + m.name + "{" + labels + "} " + m.value + "\n"
		}
	}
	if err := testutil.CollectAndCompare(budgetsOnly{seen}, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
