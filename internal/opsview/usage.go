package opsview

import (
	"cmp"
	"time"

	"github.com/tundish-io/tundish/shaper/operator"
)

// Usage is the usage of calls of language models.
type Usage struct {
	Bucket string `json:"bucket"`

	// The first day, by UTC.
	From string `json:"from" jsonschema:"format=date"`

	// The last day, included.
	To string `json:"to" jsonschema:"format=date"`

	// The dimensions of the rows.
	By []operator.UsageBy `json:"by"`

	// Those with the most tokens first.
	Rows []UsageRow `json:"rows"`

	// The sum of all that was requested, also of rows that are left out.
	Total operator.UsageSum `json:"total"`

	// There are more than 1,000 rows: request fewer days, or filter.
	More bool `json:"more,omitempty"`
}

// UsageRow is a sum of calls. Dimensions that were not requested are absent.
type UsageRow struct {
	// By UTC.
	Day string `json:"day,omitempty" jsonschema:"format=date"`

	// Absent in a bucket without groups.
	Group *string `json:"group,omitempty"`

	// Absent in a bucket without flows.
	Flow *string `json:"flow,omitempty"`

	// The `caller` or the name of the API key. Absent for jobs without a caller, such as jobs of a program with the library. For a key that this server
	// does not have, the seven letters by which Redis identifies the caller.
	Caller *string `json:"caller,omitempty"`
	Model  *string `json:"model,omitempty"`

	// The model that the calls named, if a fallback used `model` in its place (`fallback_models`). Absent otherwise.
	Asked *string `json:"asked,omitempty"`

	// The row has calls above the bound of a day. They have no caller and flow of their own, and no model if it is absent.
	Other bool `json:"other,omitempty"`
	operator.UsageSum
}

// UsageOf shows the use of a bucket. callers are the names of callers by their marks.
func UsageOf(bucket string, usage *operator.Usage, callers map[string]string) *Usage {
	view := &Usage{
		Bucket: bucket, From: usage.From.Format(time.DateOnly), To: usage.To.Format(time.DateOnly), By: usage.By, Rows: make([]UsageRow, len(usage.Rows)),
		Total: usage.Total, More: usage.More,
	}
	for i, row := range usage.Rows {
		one := UsageRow{Group: row.Group, Flow: row.Flow, Model: row.Model, Asked: row.Asked, Other: row.Other, UsageSum: row.UsageSum}
		if !row.Day.IsZero() {
			one.Day = row.Day.Format(time.DateOnly)
		}
		if row.Caller != nil {
			name := cmp.Or(callers[*row.Caller], *row.Caller)
			one.Caller = &name
		}
		view.Rows[i] = one
	}
	return view
}
