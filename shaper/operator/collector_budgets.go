package operator

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tundish-io/tundish/shaper"
)

// Labels of budgets: the bucket is "" for a pool's budget, the pool is "" for a bucket's.
var ofBudget = []string{"bucket", "pool", "budget"}

var (
	budgetLimit    = prometheus.NewDesc("tundish_budget_limit", "Amount of a budget of a bucket or a pool in its window, in the unit of the budget.", ofBudget, nil)
	budgetCharged  = prometheus.NewDesc("tundish_budget_charged", "Of a budget, charged in its window: what jobs in flight reserve, and what the others used.", ofBudget, nil)
	budgetInFlight = prometheus.NewDesc("tundish_budget_in_flight", "Of a budget, reserved by jobs in flight.", ofBudget, nil)
)

func describeBudgets(ch chan<- *prometheus.Desc) {
	ch <- budgetLimit
	ch <- budgetCharged
	ch <- budgetInFlight
}

func collectBudgets(ch chan<- prometheus.Metric, seen collected) {
	collect := func(bucket, pool string, budgets []shaper.BudgetUse) {
		for _, b := range budgets {
			for desc, value := range map[*prometheus.Desc]int64{budgetLimit: b.Budget.Count, budgetCharged: b.Charged, budgetInFlight: b.Open} {
				ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value), bucket, pool, b.Budget.String())
			}
		}
	}
	for i := range seen.buckets {
		collect(seen.buckets[i].Name, "", seen.buckets[i].Budgets)
	}
	for i := range seen.pools {
		collect("", seen.pools[i].Name, seen.pools[i].BudgetUse)
	}
}
