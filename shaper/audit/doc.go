// Package audit keeps a record of each operation by which somebody has changed something: who, from where, what, why, and what it came to. It
// is written before the first change, so that no change is without a record: one whose process died has the outcome [Begun].
//
// Records are kept for 90 days. Each is in one of three classes: begun, changed (done or failed) and nothing (refused, or nothing to change). A class
// has bounds of bytes, which authors share: a record beyond an author's share removes the oldest one of the same author and class, and above the bound
// of a class the author that holds the most of it loses its oldest one. So each author keeps at least its equal part, and an operation that changed
// nothing never removes the record of a change, nor by its begin one of another author that has begun and not ended. The oldest record is
// the one that was written longest ago. Operations that changed nothing are counted in one record per hour, and those of one author in 20 records and a
// rest. Logins have records and bounds of their own: see [Log.Logins].
package audit

// A book is records with bounds of their own.
type book struct {
	keys    []string // in Redis, which share a slot: lists, texts, begun, changed, nothing; see lua/record_operation.lua
	changed bounds   // of the records of changes, and again of the records that have not ended
	nothing bounds   // of the records of operations that changed nothing
}

// bounds are bytes: of the records of one author, and of all.
type bounds struct{ share, most int }

func newBook(name string, changed, nothing bounds) book {
	prefix := "tundish:{fleet}:" + name + ":"
	return book{[]string{prefix + "lists", prefix + "texts", prefix + "begun", prefix + "changed", prefix + "nothing"}, changed, nothing}
}

// Bounds of the records in bytes. A record counts with its text, usually 300 to 500 bytes, and with 512 bytes for its entries in the lists.
const (
	ShareOfChanges = 8 << 20 // and as much of operations that have begun and not ended
	MostOfChanges  = 64 << 20
	ShareOfNothing = 1 << 20 // of operations that were refused or changed nothing
	MostOfNothing  = 8 << 20
	ShareOfLogins  = 256 << 10
	MostOfLogins   = 8 << 20
)

var (
	changes = newBook("changes", bounds{ShareOfChanges, MostOfChanges}, bounds{ShareOfNothing, MostOfNothing})
	logins  = newBook("logins", bounds{ShareOfLogins, MostOfLogins}, bounds{ShareOfLogins, MostOfLogins})
)

// maxRecords bounds one answer.
const maxRecords = 1000

// Bounds of a record.
const (
	maxText    = 512     // bytes of one text as JSON
	maxEntries = 40      // of a list
	maxRecord  = 8 << 10 // bytes of the whole: a longer one has shorter texts and lists
)
