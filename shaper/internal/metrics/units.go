package metrics

import "github.com/tundish-io/tundish/shaper"

// What became of units of budgets. Reserved units are used or given back in the end, or lost with a lease. Owed units were used in excess of the
// reservation.
const (
	unitsReserved  = "reserved"
	unitsUsed      = "used"
	unitsGivenBack = "given_back"
	unitsOwed      = "owed"
)

var unitKinds = []string{unitsReserved, unitsUsed, unitsGivenBack, unitsOwed}

// AddUnit exposes the series of a budget unit of the bucket at 0.
func (m *Metrics) AddUnit(bucket, unit string) {
	if m == nil {
		return
	}
	for _, kind := range unitKinds {
		m.units.know(bucket, []string{unit, kind})
	}
}

// RemoveUnit removes the series of a unit of a bucket.
func (m *Metrics) RemoveUnit(bucket, unit string) {
	if m != nil {
		m.units.forget(bucket, unit)
	}
}

// CountReserved counts what a departure charges. Only units of budgets are counted, so callers cannot create series.
func (m *Metrics) CountReserved(bucket string, reserved shaper.Units) {
	if m == nil {
		return
	}
	for unit, amount := range reserved {
		add(m.units, amount, bucket, unit, unitsReserved)
	}
}

// CountUsed counts what a departure used of its reservation, in the same units.
func (m *Metrics) CountUsed(bucket string, reserved, used shaper.Units) {
	if m == nil {
		return
	}
	for unit, amount := range reserved {
		n := max(used[unit], 0) // a worker of another program may return any number
		add(m.units, n, bucket, unit, unitsUsed)
		add(m.units, amount-n, bucket, unit, unitsGivenBack)
		add(m.units, n-amount, bucket, unit, unitsOwed)
	}
}
