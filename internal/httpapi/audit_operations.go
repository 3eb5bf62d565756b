package httpapi

import (
	"errors"
	"net/http"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/audit"
)

// AuditQuery selects the records of a list.
type AuditQuery struct {
	// Only operations on this bucket. Required of a key that is not for all buckets.
	Bucket string `json:"bucket" in:"query"`

	// Only operations of authors whose text contains this, such as `key deploy` or `alice@example.com`. A response is of 10,000 records at most: it may
	// have fewer than limit, or none, and a cursor to go on.
	Author string `json:"author" in:"query"`

	// `true` lists logins of the console instead of changes. It needs a key for all buckets.
	Logins bool `json:"logins" in:"query"`

	// How many at most.
	Limit int `json:"limit" in:"query" jsonschema:"minimum=1,maximum=1000,default=100"`

	// The `next` of the previous response.
	Cursor string `json:"cursor" in:"query"`
}

// AuditPage are records, the newest first.
type AuditPage struct {
	Records []audit.Record `json:"records"`

	// The cursor to go on with. Absent at the end.
	Next string `json:"next,omitempty"`
}

// ShowAudit lists the recorded changes with their authors.
var ShowAudit = &Operation[AuditQuery, *AuditPage]{
	ID: "showAudit", Method: "GET", Path: "/v1/audit", Roles: []apikey.Role{apikey.RoleRead}, Faults: []code{codeForbidden},
	Answer:   "Some of the records.",
	Commands: []string{"audit"},
	Summary:  "Who changed what",
	Description: `Each operation of the API and of the command line that changes something has one record, and so has each reload of a configuration. It is written
before the first change, and again at the end: without it nothing is changed, and one that says ` + "`begun`" + ` may have changed something before its process died.
Records have names of settings that may be secret, and never their values. Operations that were refused or changed nothing are counted in one record per hour,
author, address, operation, bucket and outcome, with the texts of the last one: ` + "`times`" + ` says how many, and ` + "`last`" + ` when the last one began. An author
has 20 such records in an hour. What would begin a further one, as from many addresses, is counted in one record for each outcome.

Records are kept for 90 days, and up to 8 MiB per author and 64 MiB in all. A record counts with its text, usually 300 to 500 bytes, and with 512 bytes more.
Above its share an author's own oldest record is removed. Above the bound of all, the author that holds the most loses its oldest one. The oldest one is the one that
was written longest ago, with its last part. Operations that have not ended have the same bounds once more. Operations that were refused or changed nothing have 1 MiB of one author and 8 MiB of all, and never remove the record of a change. Logins have
256 KiB of one key and 8 MiB of all.

An operation that a client makes in several requests, such as a redrive of all dead letters, has one record if each request repeats the header
` + "`Tundish-Audit-Part`" + ` of the response before, within ten minutes and within a day of the first one, with the same ` + "`X-Request-Id`" + ` and the same input except the cursor.`,
}

func (o *ops) showAudit(r *http.Request, in *AuditQuery) (*AuditPage, error) {
	wanted := in.Bucket
	if wanted == "" || in.Logins {
		wanted = apikey.AllBuckets
	}
	if isForeign(r, wanted) {
		return nil, newFault(codeForbidden, "key %q is not for it: name one of its buckets as ?bucket=", keyName(r))
	}
	const usual = 100
	limit := in.Limit
	if limit == 0 {
		limit = usual
	}
	from, bucket := o.records, in.Bucket
	if in.Logins {
		from, bucket = from.Logins(), ""
	}
	records, next, err := from.Find(r.Context(), audit.Filter{Bucket: bucket, Author: in.Author}, in.Cursor, limit)
	if errors.Is(err, audit.ErrCursor) {
		return nil, invalid([]*shaper.FieldError{{Field: "cursor", Reason: "want the next of an answer"}})
	}
	if records == nil {
		records = []audit.Record{}
	}
	return &AuditPage{records, next}, err
}
