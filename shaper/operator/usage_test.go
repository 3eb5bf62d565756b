package operator_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/operator"
)

var (
	anna = shaper.CallerMark("anna")
	bert = shaper.CallerMark("bert")
)

// usedBucket has the use of two days of the bucket "b", in which flows were in groups on the second one.
func usedBucket(t *testing.T) (operator.Bucket, redis.UniversalClient) {
	t.Helper()
	client := redistest.Start(t).Client()
	op := must.Get(operator.New(operator.Config{Timeout: rig.Patience, Redis: client, Buckets: []shaper.Bucket{rig.Bucket("b", 10)}}))(t)
	k := store.BucketKeys("b")
	for day, fields := range map[string][]any{
		"20260101": {anna + " gpt-4o fx", "1 100 10", anna + " gpt-4o fy", "2 200 20", bert + " gpt-4o fx", "3 300 30", " o%2F3 f", "4 400 40", "unreadable", "x"},
		"20260102": {anna + " gpt-4o g1:gx", "5 500 50", anna + " gpt-4o g1:hx", "6 600 60", "* gpt-4o *", "7 700 70", "* * *", "8 800 80"},
	} {
		must.OK(t, client.HSet(t.Context(), k.Use(day), fields...).Err())
	}
	return op.Bucket("b"), client
}

// rowText is what a row has, then "calls input output".
func rowText(row operator.UsageRow) string {
	var text []string
	if !row.Day.IsZero() {
		text = append(text, row.Day.Format(time.DateOnly))
	}
	for i, value := range []*string{row.Model, row.Group, row.Flow, row.Caller} {
		if value != nil {
			text = append(text, [...]string{"model", "group", "flow", "caller"}[i]+"="+*value)
		}
	}
	if row.Other {
		text = append(text, "other")
	}
	return fmt.Sprintf("%s: %d %d %d", strings.Join(text, " "), row.Calls, row.Input, row.Output)
}

func TestUsage(t *testing.T) {
	t.Parallel()
	b, _ := usedBucket(t)
	const total = "36 3600 360"
	by := func(by ...operator.UsageBy) operator.UsageQuery { return operator.UsageQuery{By: by} }
	empty, x, g, gpt, annas, noModel := "", "x", "g", "gpt-4o", "anna", "o/3"
	for name, c := range map[string]struct {
		query operator.UsageQuery
		want  []string
		total string
	}{
		"day and model": {by(), []string{
			"2026-01-02 model=gpt-4o: 18 1800 180", "2026-01-02 other: 8 800 80", "2026-01-01 model=gpt-4o: 6 600 60", "2026-01-01 model=o/3: 4 400 40",
		}, total},
		"day": {by(operator.UsageByDay), []string{"2026-01-02: 26 2600 260", "2026-01-01: 10 1000 100"}, total},
		"flow": {by(operator.UsageByFlow), []string{
			"other: 15 1500 150", "group=h flow=x: 6 600 60", "group=g flow=x: 5 500 50", "flow=: 4 400 40", "flow=x: 4 400 40", "flow=y: 2 200 20",
		}, total},
		"group":  {by(operator.UsageByGroup), []string{"other: 15 1500 150", ": 10 1000 100", "group=h: 6 600 60", "group=g: 5 500 50"}, total},
		"caller": {by(operator.UsageByCaller), []string{"other: 15 1500 150", "caller=" + anna + ": 14 1400 140", ": 4 400 40", "caller=" + bert + ": 3 300 30"}, total},
		"caller and model": {by(operator.UsageByCaller, operator.UsageByModel), []string{
			"model=gpt-4o caller=" + anna + ": 14 1400 140", "other: 8 800 80", "model=gpt-4o other: 7 700 70", "model=o/3: 4 400 40", "model=gpt-4o caller=" + bert + ": 3 300 30",
		}, total},
		"of a day": {operator.UsageQuery{From: time.Date(2026, 1, 1, 23, 0, 0, 0, time.UTC), To: time.Date(2026, 1, 1, 1, 0, 0, 0, time.UTC), By: by(operator.UsageByDay).By},
			[]string{"2026-01-01: 10 1000 100"}, "10 1000 100"},
		"of a flow":            {operator.UsageQuery{By: by(operator.UsageByFlow).By, Flow: &x}, []string{"group=h flow=x: 6 600 60", "group=g flow=x: 5 500 50", "flow=x: 4 400 40"}, "15 1500 150"},
		"of the flow \"\"":     {operator.UsageQuery{By: by(operator.UsageByFlow).By, Flow: &empty}, []string{"flow=: 4 400 40"}, "4 400 40"},
		"of a group":           {operator.UsageQuery{By: by(operator.UsageByGroup).By, Group: &g}, []string{"group=g: 5 500 50"}, "5 500 50"},
		"of a model":           {operator.UsageQuery{By: by(operator.UsageByModel).By, Model: &gpt}, []string{"model=gpt-4o: 24 2400 240"}, "24 2400 240"},
		"of an escaped model":  {operator.UsageQuery{By: by(operator.UsageByModel).By, Model: &noModel}, []string{"model=o/3: 4 400 40"}, "4 400 40"},
		"of a caller":          {operator.UsageQuery{By: by(operator.UsageByDay).By, Caller: &annas}, []string{"2026-01-02: 11 1100 110", "2026-01-01: 3 300 30"}, "14 1400 140"},
		"of a mark":            {operator.UsageQuery{By: by(operator.UsageByCaller).By, Caller: &bert}, []string{"caller=" + bert + ": 3 300 30"}, "3 300 30"},
		"of no caller":         {operator.UsageQuery{By: by(operator.UsageByCaller).By, Caller: &empty}, []string{": 4 400 40"}, "4 400 40"},
		"of nothing there was": {operator.UsageQuery{Flow: &annas}, nil, "0 0 0"},
	} {
		if c.query.From.IsZero() {
			c.query.From, c.query.To = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)
		}
		found := must.Get(b.Usage(t.Context(), c.query))(t)
		var rows []string
		for _, row := range found.Rows {
			rows = append(rows, rowText(row))
		}
		must.Equal(t, cmp.Diff(c.want, rows), "", "%s (-want +found):", name)
		if got := fmt.Sprint(found.Total.Calls, found.Total.Input, found.Total.Output); got != c.total || found.More {
			t.Errorf("%s: the total is %s, want %s; more: %t", name, got, c.total, found.More)
		}
	}
}

// An answer has 1,000 rows, and the total of all. It takes one round trip more than to find the bucket.
func TestUsageIsBounded(t *testing.T) {
	t.Parallel()
	b, client := usedBucket(t)
	fields := make([]any, 0, 2*1200)
	for i := range 1200 {
		fields = append(fields, fmt.Sprintf(" m%d ", i), fmt.Sprintf("1 %d 0", i))
	}
	must.OK(t, client.HSet(t.Context(), store.BucketKeys("b").Use("20251225"), fields...).Err())
	day := time.Date(2025, 12, 25, 0, 0, 0, 0, time.UTC)
	query := operator.UsageQuery{From: day, To: day.AddDate(0, 0, operator.MaxUsageDays-1), By: []operator.UsageBy{operator.UsageByModel}}
	if _, err := b.Usage(t.Context(), query); err != nil { // connects
		t.Fatal(err)
	}
	trips := &rig.TripHook{}
	client.AddHook(trips)
	found, err := b.Usage(t.Context(), query)
	if err != nil || !found.More || len(found.Rows) != operator.MaxUsageRows || found.Total.Calls != 1200+36 || rowText(found.Rows[1]) != "model=m1199: 1 1199 0" {
		t.Errorf("%d rows, more: %t, total %+v, second %s; %v", len(found.Rows), found.More, found.Total, rowText(found.Rows[1]), err)
	}
	if n := trips.Seen.Load(); n > 2 {
		t.Errorf("%d round trips", n)
	}
}

func TestUsageRefuses(t *testing.T) {
	t.Parallel()
	b, client := usedBucket(t)
	at := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for want, query := range map[string]operator.UsageQuery{
		"from: 2026-01-31 is after 2026-01-30": {From: at, To: at.AddDate(0, 0, -1)},
		"from: want at most 31 days":           {From: at.AddDate(0, 0, -31), To: at},
		`by: "week": want some of [day`:        {By: []operator.UsageBy{operator.UsageByDay, "week"}},
	} {
		_, err := b.Usage(t.Context(), query)
		if _, ok := errors.AsType[*operator.InvalidChangeError](err); !ok || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	op := must.Get(operator.New(operator.Config{Timeout: rig.Patience, Redis: client, Buckets: []shaper.Bucket{rig.Bucket("b", 10)}}))(t)
	if _, err := op.Bucket("nosuch").Usage(t.Context(), operator.UsageQuery{}); !errors.Is(err, shaper.ErrUnknownBucket) {
		t.Errorf("of no bucket: %v", err)
	}
	found, err := b.Usage(t.Context(), operator.UsageQuery{})
	if err != nil || found.To.Sub(found.From) != 6*24*time.Hour || len(found.Rows) > 0 {
		t.Errorf("without days: %+v, %v", found, err)
	}
}
