package httpapi

import (
	"errors"
	"net/http"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/audit"
)

// AuditQuery says which records a list has.
type AuditQuery struct {
	// Only operations on this bucket. Required of a key that is not for all buckets.
	Bucket string `json:"bucket" in:"query"`

	// How many at most.
	Limit int `json:"limit" in:"query" jsonschema:"minimum=1,maximum=1000,default=100"`

	// The next of the answer before.
	Cursor string `json:"cursor" in:"query"`
}

// AuditPage are records, the newest first.
type AuditPage struct {
	Records []audit.Record `json:"records"`

	// The cursor to go on with. Absent at the end.
	Next string `json:"next,omitempty"`
}

// ShowAudit lists who has changed what.
var ShowAudit = &Operation[AuditQuery, *AuditPage]{
	ID: "showAudit", Method: "GET", Path: "/v1/audit", Roles: []apikey.Role{apikey.RoleRead}, Faults: []code{codeForbidden},
	Answer:   "Some of the records.",
	Commands: []string{"audit"},
	Summary:  "Who changed what",
	Description: `Each operation of the API and of the command line that changes something has one record, and so has each reload of a configuration. It is written
before the first change, and again at the end: without it nothing is changed, and one that says ` + "`begun`" + ` may have changed something before its process died.
Records are kept for 90 days, of a bucket the newest 1000, of all 100,000. They have names of settings that may be secret, and never their values.`,
}

func (o *ops) showAudit(r *http.Request, in *AuditQuery) (*AuditPage, error) {
	wanted := in.Bucket
	if wanted == "" {
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
	records, next, err := o.records.Records(r.Context(), in.Bucket, in.Cursor, limit)
	if errors.Is(err, audit.ErrCursor) {
		return nil, invalid([]*shaper.FieldError{{Field: "cursor", Reason: "want the next of an answer"}})
	}
	if records == nil {
		records = []audit.Record{}
	}
	return &AuditPage{records, next}, err
}
