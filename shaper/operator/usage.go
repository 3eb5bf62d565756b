package operator

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

// Bounds of the result of [Bucket.Usage].
const (
	MaxUsageDays = codec.UseKept
	MaxUsageRows = 1000

	usualUsageDays = 7
)

// UsageBy is a dimension of the rows of a [Usage].
type UsageBy string

// The dimensions.
const (
	UsageByDay    UsageBy = "day"
	UsageByModel  UsageBy = "model"
	UsageByFlow   UsageBy = "flow" // and its group, where there are groups
	UsageByGroup  UsageBy = "group"
	UsageByCaller UsageBy = "caller"
)

// UsageBys lists all of them.
func UsageBys() []UsageBy {
	return []UsageBy{UsageByDay, UsageByModel, UsageByFlow, UsageByGroup, UsageByCaller}
}

// UsageQuery selects use of models, and the dimensions of its sums. A nil field matches everything.
type UsageQuery struct {
	From, To time.Time // the days of these instants, by UTC, are included. A zero To means today, and a zero From six days before To.
	By       []UsageBy // none: by day and model
	Group    *string
	Flow     *string // "" is a flow too
	Caller   *string // its name or its mark (see [shaper.CallerMark]); "" means jobs without a caller
	Model    *string
}

// Usage is what calls of language models have used, as workers reported in [shaper.Outcome.Use].
type Usage struct {
	From, To time.Time  // the first and the last day
	By       []UsageBy  // as requested
	Rows     []UsageRow // most tokens first
	Total    UsageSum   // of all calls that match the query, also of rows that are left out
	More     bool       // there are more rows than MaxUsageRows
}

// UsageSum is a number of calls and their tokens.
type UsageSum struct {
	Calls  int64 `json:"calls"`
	Input  int64 `json:"input"`  // tokens
	Output int64 `json:"output"` // tokens

	// Tokens that count against budgets, such as a maximum that is charged whatever the response has. In a bucket without budgets of tokens, what would count.
	Charged int64 `json:"charged"`
}

// Tokens returns the sum of input and output tokens.
func (s UsageSum) Tokens() int64 { return s.Input + s.Output }

func (s *UsageSum) add(used *codec.Used) {
	s.Calls, s.Input, s.Output, s.Charged = s.Calls+used.Calls, s.Input+used.Input, s.Output+used.Output, s.Charged+used.Charged
}

// UsageRow is a sum. A dimension that the query does not ask for is nil, and so is one that the calls do not have.
type UsageRow struct {
	Day         time.Time // its start
	Group, Flow *string
	Caller      *string // its mark
	Model       *string
	Asked       *string // the model that the calls requested, if a fallback responded with Model in its place
	UsageSum

	// Other says that the row has the calls above the bound of a day. A day counts 900 combinations of caller, model and flow, of which one caller
	// uses at most as many as it leaves free. Above it, flow and caller of a call are unknown; above 99 models the model is unknown too.
	Other bool
}

// Usage sums up what calls of language models have used, for days of the last 31, in two round trips. Each call counts on the day on which its job
// was claimed. It counts when its outcome is written, so calls of a dispatcher that died before that are missing.
func (b Bucket) Usage(ctx context.Context, query UsageQuery) (Usage, error) {
	if err := query.fill(time.Now()); err != nil {
		return Usage{}, &InvalidChangeError{b.name, err}
	}
	k, err := b.op.keysOf(ctx, b.name)
	if err != nil {
		return Usage{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, b.op.store.Timeout)
	defer cancel()
	days := codec.UseDays(query.From, query.To)
	pipe, asked := b.op.store.Redis.Pipeline(), make([]*redis.MapStringStringCmd, len(days))
	for i, day := range days {
		asked[i] = pipe.HGetAll(ctx, k.Use(day))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return Usage{}, fmt.Errorf("bucket %q: read its use of models: %w", b.name, err)
	}
	sums := usageSums{query: &query, rows: map[usageKey]*UsageSum{}}
	for i, day := range days {
		for field, value := range asked[i].Val() {
			if used, ok := codec.ReadUsed(field, value); ok {
				sums.add(day, &used)
			}
		}
	}
	return sums.usage(), nil
}

// fill sets the defaults of the query, or returns its first fault.
func (q *UsageQuery) fill(now time.Time) error {
	if q.To.IsZero() {
		q.To = now
	}
	q.To = dayOf(q.To)
	if q.From.IsZero() {
		q.From = q.To.AddDate(0, 0, 1-usualUsageDays)
	}
	q.From = dayOf(q.From)
	if len(q.By) == 0 {
		q.By = []UsageBy{UsageByDay, UsageByModel}
	}
	switch {
	case q.From.After(q.To):
		return &shaper.FieldError{Field: "from", Reason: fmt.Sprintf("%s is after %s", q.From.Format(time.DateOnly), q.To.Format(time.DateOnly))}
	case !q.From.AddDate(0, 0, MaxUsageDays).After(q.To):
		return &shaper.FieldError{Field: "from", Reason: fmt.Sprintf("want at most %d days: the use of models is kept for as long", MaxUsageDays)}
	}
	for _, by := range q.By {
		if !slices.Contains(UsageBys(), by) {
			return &shaper.FieldError{Field: "by", Reason: fmt.Sprintf("%q: want some of %v", by, UsageBys())}
		}
	}
	return nil
}

// dayOf returns the start of the day of an instant, by UTC.
func dayOf(at time.Time) time.Time { return at.UTC().Truncate(24 * time.Hour) }

// matches reports whether the query matches the calls. Calls above the bound of a day have no known caller or flow.
func (q *UsageQuery) matches(used *codec.Used) bool {
	is := func(asked *string, known bool, text string) bool { return asked == nil || known && *asked == text }
	return is(q.Model, !used.OtherModels, used.Model) &&
		is(q.Flow, !used.OtherParts, used.Flow) &&
		is(q.Group, !used.OtherParts && used.Levels == codec.LevelsGroups, used.Group) &&
		(q.Caller == nil || !used.OtherParts && (used.Caller == shaper.CallerMark(*q.Caller) || used.Caller == *q.Caller))
}

// usageKey identifies a row.
type usageKey struct {
	day, model, asked, group, flow, caller string
	hasGroup, hasFlow, hasModel            bool
	other                                  bool
}

// usageSums collects rows.
type usageSums struct {
	query *UsageQuery
	rows  map[usageKey]*UsageSum
	total UsageSum
}

func (s *usageSums) add(day string, used *codec.Used) {
	if !s.query.matches(used) {
		return
	}
	key := usageKey{}
	for _, by := range s.query.By {
		switch by {
		case UsageByDay:
			key.day = day
		case UsageByModel:
			key.model, key.asked, key.hasModel, key.other = used.Model, used.Asked, !used.OtherModels, key.other || used.OtherModels
		case UsageByFlow, UsageByGroup:
			key.group, key.hasGroup, key.other = used.Group, used.Levels == codec.LevelsGroups, key.other || used.OtherParts
			if by == UsageByFlow {
				key.flow, key.hasFlow = used.Flow, used.Levels != codec.LevelsNone
			}
		case UsageByCaller:
			key.caller, key.other = used.Caller, key.other || used.OtherParts
		}
	}
	row := s.rows[key]
	if row == nil {
		row = &UsageSum{}
		s.rows[key] = row
	}
	row.add(used)
	s.total.add(used)
}

func (s *usageSums) usage() Usage {
	usage := Usage{From: s.query.From, To: s.query.To, By: s.query.By, Total: s.total, More: len(s.rows) > MaxUsageRows}
	keys := make([]usageKey, 0, len(s.rows))
	for key := range s.rows {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b usageKey) int {
		return cmp.Or(cmp.Compare(s.rows[b].Tokens(), s.rows[a].Tokens()), cmp.Compare(s.rows[b].Calls, s.rows[a].Calls), cmp.Compare(a.day, b.day),
			strings.Compare(a.model, b.model), strings.Compare(a.asked, b.asked), strings.Compare(a.group, b.group), strings.Compare(a.flow, b.flow), strings.Compare(a.caller, b.caller))
	})
	some := func(has bool, text string) *string {
		if !has {
			return nil
		}
		return &text
	}
	for _, key := range keys[:min(len(keys), MaxUsageRows)] {
		row := UsageRow{
			Group: some(key.hasGroup, key.group), Flow: some(key.hasFlow, key.flow), Caller: some(key.caller != "", key.caller),
			Model: some(key.hasModel, key.model), Asked: some(key.asked != "", key.asked), UsageSum: *s.rows[key], Other: key.other,
		}
		row.Day, _ = codec.ParseUseDay(key.day) // zero unless the rows are by day
		usage.Rows = append(usage.Rows, row)
	}
	return usage
}
