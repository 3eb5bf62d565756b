package httpapi

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// UsageQuery selects the use of models to sum up, and its dimensions.
type UsageQuery struct {
	BucketName

	// The first day, by UTC, such as 2026-11-01. Without it, six days before the last one.
	From string `json:"from" in:"query" jsonschema:"format=date"`

	// The last day, included. Without it, today.
	To string `json:"to" in:"query" jsonschema:"format=date"`

	// The dimensions of the rows: some of `day`, `model`, `flow` (with its group), `group` and `caller`, with commas between them. Without it, by day and
	// model.
	By string `json:"by" in:"query"`

	// Calls of jobs of this flow.
	Flow *string `json:"flow" in:"query"`

	// Of this group.
	Group *string `json:"group" in:"query"`

	// Of this caller. An empty one selects jobs without a caller.
	Caller *string `json:"caller" in:"query"`

	// Of this model, as requests name it.
	Model *string `json:"model" in:"query"`
}

// ShowUsage sums up the usage of model calls.
var ShowUsage = &Operation[UsageQuery, *opsview.Usage]{
	ID: "showUsage", Method: "GET", Path: "/v1/buckets/{bucket}/usage", Roles: []apikey.Role{apikey.RoleRead}, StrictQuery: true,
	Answer:   "The rows with the most tokens first, 1,000 at most, and the total of all.",
	Commands: []string{"usage"},
	Summary:  "Sum up what calls of language models have used",
	Description: `Counts the good answers in a bucket with the worker ` + "`llm`" + `, and their tokens: the tokens that the response reports, or an estimate where it reports
none. ` + "`charged`" + ` is what they count against budgets of tokens. The last 31 days are kept. A call counts once, on the day on which its job was claimed. It counts when its outcome is written: a call
whose dispatcher dies before that is missing, and its job is sent again. A day distinguishes 900 combinations of caller, model and flow, of
which one caller alone has half. Calls of further ones are added up as ` + "`other`" + `, by model, and above 99 models without it. So no call is
missing in the total. With a filter,
only calls whose caller, flow and model are known count. A key has four lists at a time, and this is one of them.`,
}

func (o *ops) showUsage(r *http.Request, in *UsageQuery) (*opsview.Usage, error) {
	query := operator.UsageQuery{Flow: in.Flow, Group: in.Group, Caller: in.Caller, Model: in.Model}
	var errs []error
	day := func(field, text string) (at time.Time) {
		if text == "" {
			return at
		}
		at, err := time.Parse(time.DateOnly, text)
		if err != nil || at.IsZero() {
			errs = append(errs, &shaper.FieldError{Field: field, Reason: "want a day such as 2026-03-01"})
		}
		return at
	}
	query.From, query.To = day("from", in.From), day("to", in.To)
	if in.By != "" {
		for word := range strings.SplitSeq(in.By, ",") {
			query.By = append(query.By, operator.UsageBy(word))
		}
	}
	if len(errs) > 0 {
		return nil, invalid(fieldErrors(errors.Join(errs...)))
	}
	usage, err := o.buckets.Bucket(in.Bucket).Usage(r.Context(), query)
	if err != nil {
		return nil, err
	}
	return opsview.UsageOf(in.Bucket, &usage, *o.callers.Load()), nil
}
