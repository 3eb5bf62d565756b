// Package audit keeps a record of each operation by which somebody has changed something: who, from where, what, why, and what it came to. It
// is written before the first change, so that no change is without a record: one whose process died has the outcome [Begun].
package audit

// Keys in Redis, which share a slot: see lua/record_operation.lua.
const (
	allKey     = "tundish:{fleet}:audit"
	ownKey     = "tundish:{fleet}:audit:" // and the name of a bucket
	recordsKey = "tundish:{fleet}:audit_records"
)

// Bounds of one answer.
const (
	maxRecords = 1000
	together   = 100 // records that begin in one microsecond
)

// Bounds of a record.
const (
	maxText    = 512 // bytes of one text; a reason has as many at most
	maxEntries = 40  // of a list
)
