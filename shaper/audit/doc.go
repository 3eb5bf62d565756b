// Package audit keeps a record of each operation by which somebody has changed something: who, from where, what, why, and what it came to. It
// is written before the first change, so that no change is without a record: one whose process died has the outcome [Begun].
//
// Records are kept for 90 days within bounds of bytes, which authors share: a record beyond an author's share removes the oldest one of the same
// author, and above the bound of all records the author that holds the most loses its oldest one. So each author keeps at least its equal part.
// Operations that changed nothing are counted in one record for each hour. Logins have records and bounds of their own: see [Log.Logins].
package audit

// A book is records with bounds of their own.
type book struct {
	keys  []string // in Redis, which share a slot: lists, texts, shares; see lua/record_operation.lua
	share int      // bytes of the records of one author
	most  int      // bytes of all records
}

func newBook(name string, share, most int) book {
	prefix := "tundish:{fleet}:" + name + ":"
	return book{[]string{prefix + "lists", prefix + "texts", prefix + "shares"}, share, most}
}

// Bounds of the records in bytes. A record counts with its text, usually 300 to 500 bytes, and with 512 bytes for its entries in the lists.
const (
	ShareOfChanges = 8 << 20
	MostOfChanges  = 64 << 20
	ShareOfLogins  = 256 << 10
	MostOfLogins   = 8 << 20
)

var (
	changes = newBook("changes", ShareOfChanges, MostOfChanges)
	logins  = newBook("logins", ShareOfLogins, MostOfLogins)
)

// maxRecords bounds one answer.
const maxRecords = 1000

// Bounds of a record.
const (
	maxText    = 512     // bytes of one text; a reason has as many at most
	maxEntries = 40      // of a list
	maxRecord  = 8 << 10 // bytes of the whole: a longer one has shorter texts and lists
)
