// Package audit keeps a record of each operation that changed something: its author, address, object, reason and outcome. The record is written
// before the first change, so no change lacks one: an operation whose process died has the outcome [Begun].
//
// Records are kept for 90 days. Each is in one of three classes: begun, changed (done or failed) and nothing (refused, or nothing to change). The
// bytes of a class are bounded, and its authors share them. A record beyond an author's share removes the oldest record of that author and class.
// Above the bound of a class, the author that holds most of it loses its oldest record. So each author keeps at least an equal part. An operation
// that changed nothing never removes the record of a change. Nor does its begin remove another author's record that has begun and not ended.
// Operations that changed nothing are counted in one record per hour. Logins have their own records and bounds: see [Log.Logins].
package audit

// book is a set of records with its own bounds.
type book struct {
	keys    []string // in Redis, in one hash slot: lists, texts, begun, changed, nothing; see lua/record_operation.lua
	changed bounds   // of the records of changes; records that have not ended have the same bounds again
	nothing bounds   // of the records of operations that changed nothing
}

// bounds are in bytes: of the records of one author (share), and of all (most).
type bounds struct{ share, most int }

func newBook(name string, changed, nothing bounds) book {
	prefix := "tundish:{fleet}:" + name + ":"
	return book{[]string{prefix + "lists", prefix + "texts", prefix + "begun", prefix + "changed", prefix + "nothing"}, changed, nothing}
}

// Bounds of the records in bytes. A record counts as its text, usually 300 to 500 bytes, plus 512 bytes for its list entries.
const (
	ShareOfChanges = 8 << 20 // and the same for operations that have begun and not ended
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

// maxRecords bounds one page of records.
const maxRecords = 1000

// Bounds of a record.
const (
	maxText    = 512     // bytes of one text as JSON
	maxEntries = 40      // of a list
	maxRecord  = 8 << 10 // bytes of the whole record: in a longer one, texts and lists are cut
)
