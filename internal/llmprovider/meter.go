package llmprovider

import (
	"slices"
	"time"
)

// Charge is an amount that counts against limits at a time.
type Charge struct {
	At       time.Time
	Requests int64
	Input    int64
	Output   int64
}

// Of is the amount of a unit.
func (c Charge) Of(unit Unit) int64 {
	switch unit {
	case Requests:
		return c.Requests
	case Input:
		return c.Input
	case Output:
		return c.Output
	default:
		return c.Input + c.Output
	}
}

// meter sums the last window of a limit.
type meter struct {
	Limit
	charges []Charge // that are in the window, or later
}

// sum returns the sum of a window that ends at now. It drops charges that are older than the window.
func (m *meter) sum(now time.Time) (sum int64) {
	m.charges = slices.DeleteFunc(m.charges, func(c Charge) bool { return now.Sub(c.At) >= m.Window })
	for _, c := range m.charges {
		if !c.At.After(now) {
			sum += c.Of(m.Unit)
		}
	}
	return sum
}

// frees returns how long it takes until an amount fits, if nothing else is charged; for an amount above the limit, until the window is empty.
func (m *meter) frees(now time.Time, amount int64) time.Duration {
	sum := m.sum(now)
	byTime := slices.SortedFunc(slices.Values(m.charges), func(a, b Charge) int { return a.At.Compare(b.At) })
	wait := time.Duration(0)
	for _, c := range byTime {
		if sum+amount <= m.Amount || c.At.After(now) {
			break
		}
		sum -= c.Of(m.Unit)
		wait = c.At.Add(m.Window).Sub(now)
	}
	return wait
}

// resets returns how long it takes until nothing is charged.
func (m *meter) resets(now time.Time) time.Duration {
	m.sum(now)
	wait := time.Duration(0)
	for _, c := range m.charges {
		if c.Of(m.Unit) > 0 {
			wait = max(wait, c.At.Add(m.Window).Sub(now))
		}
	}
	return wait
}
