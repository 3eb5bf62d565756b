// Package stored has the keys and the texts of Redis that tests write by hand, as another version, a fault or a test of one part alone would have
// left them. What producers, dispatchers and operators can write, tests have them write.
package stored

import (
	"cmp"
	"fmt"
)

// Key returns a key of a bucket without a pool; without a name, what all keys of the bucket begin with.
func Key(bucket, name string) string { return KeyIn(bucket, bucket, name) }

// KeyIn is Key of a bucket in a pool.
func KeyIn(pool, bucket, name string) string {
	return "tundish:{" + pool + "}:b:" + bucket + ":" + name
}

// PoolKey returns a key of the pool itself.
func PoolKey(pool, name string) string { return "tundish:{" + pool + "}:p:" + pool + ":" + name }

// Flow is the state of a flow, or of a group: lua/lib/flow.lua has the fields.
type Flow struct {
	Downstream                            string // the text of a Downstream
	Slot, Frac                            int64
	Rate                                  string // "" means that none is kept
	Turn, Unfinished, Scheduled, InFlight int64
	Filled                                string // "" means ".khnld": nothing is known of its places
}

func (f Flow) String() string {
	said := ""
	if f.Downstream != "" {
		said = "@" + f.Downstream + " "
	}
	return said + fmt.Sprintf("%d %d %s %d %d %d %d %s", f.Slot, f.Frac, cmp.Or(f.Rate, "-"), f.Turn, f.Unfinished, f.Scheduled, f.InFlight, cmp.Or(f.Filled, ".khnld"))
}

// Waiting is a flow with this number of waiting jobs of priority normal.
func Waiting(jobs int64) Flow { return Flow{Unfinished: jobs, Filled: ".n"} }

// Downstream is what answers have made of a scope: lua/lib/downstream.lua has the fields. Times are microseconds.
type Downstream struct {
	Till, RateCount, RatePer, Breaker, Failures, Cut, Since, Accepted, Grown, Opened, First, OpenFor, ChangedAt int64
	Reason                                                                                                      string
}

func (d Downstream) String() string {
	return fmt.Sprintf("%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%s", d.Till, d.RateCount, d.RatePer, d.Breaker, d.Failures, d.Cut, d.Since, d.Accepted,
		d.Grown, d.Opened, d.First, d.OpenFor, d.ChangedAt, d.Reason)
}
