package llmprovider

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Call is a request that a provider has recorded.
type Call struct {
	At        time.Time // its arrival
	ID        string    // its Idempotency-Key
	Model     string
	Input     int64 // tokens
	MaxOutput int64 // tokens, 0: it names no maximum
	Output    int64 // tokens of its response

	Status   int      // of the response
	Charges  []Charge // to the limits; none of a call that was refused
	Answered bool     // the whole response is written

	Sent      int64 // tokens of its output that are written, of a streaming response
	GoneAfter int   // the piece before which the client was seen to have disconnected, from 1 on; 0: it had not
	kind      kind
	number    int // from 1 on
	asksUsage bool
}

// name returns the id of the call, or its number if it has none: the id of its response contains it.
func (c *Call) name() string { return cmp.Or(c.ID, strconv.Itoa(c.number)) }

// Used is the input and the output of a call that was not refused.
func (c *Call) Used() int64 {
	if c.Status != http.StatusOK {
		return 0
	}
	return c.Input + c.Output
}

// Log is calls in the order of their arrival.
type Log []*Call

// Only returns the calls for which is returns true.
func (l Log) Only(is func(c *Call) bool) Log {
	var some Log
	for _, c := range l {
		if is(c) {
			some = append(some, c)
		}
	}
	return some
}

// Refused returns the calls with another status than 200.
func (l Log) Refused() Log { return l.Only(func(c *Call) bool { return c.Status != http.StatusOK }) }

// Answered returns how often each id got a whole response.
func (l Log) Answered() map[string]int {
	times := map[string]int{}
	for _, c := range l {
		if c.Answered {
			times[c.ID]++
		}
	}
	return times
}

// charges returns the charges of all calls, the first one first.
func (l Log) charges() []Charge {
	var all []Charge
	for _, c := range l {
		all = append(all, c.Charges...)
	}
	slices.SortStableFunc(all, func(a, b Charge) int { return a.At.Compare(b.At) })
	return all
}

// Most returns the highest sum that any window of that length was charged, wherever it begins. A window excludes its end.
func (l Log) Most(unit Unit, window time.Duration) (most int64) {
	charges := l.charges()
	sum, oldest := int64(0), 0
	for _, c := range charges {
		sum += c.Of(unit)
		for c.At.Sub(charges[oldest].At) >= window {
			sum -= charges[oldest].Of(unit)
			oldest++
		}
		most = max(most, sum)
	}
	return most
}

// Sum returns what was charged from an instant until another one, which is excluded.
func (l Log) Sum(unit Unit, from, until time.Time) (sum int64) {
	for _, c := range l.charges() {
		if !c.At.Before(from) && c.At.Before(until) {
			sum += c.Of(unit)
		}
	}
	return sum
}

// Use returns the part of a limit that was charged from an instant until another one, which is excluded.
func (l Log) Use(limit Limit, from, until time.Time) float64 {
	if !until.After(from) {
		return 0
	}
	return float64(l.Sum(limit.Unit, from, until)) / (float64(limit.Amount) * float64(until.Sub(from)) / float64(limit.Window))
}
