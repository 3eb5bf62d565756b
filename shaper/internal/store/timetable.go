package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/schedule"
	"github.com/tundish-io/tundish/shaper"
)

// Fields of a bucket's settings: its plan, as JSON, the stretches that are computed from it (see lua/lib/timetable.lua), and the kinds of events to
// which hooks subscribe.
const (
	FieldPlan      = "plan"
	FieldTimetable = "timetable"
	FieldEvents    = "events"
)

// renewAt is the least remaining length of a timetable: below it, the timetable is computed again.
const renewAt = 2 * 24 * time.Hour

// timetableField returns the current timetable of a bucket. Without a plan it is empty, and costs no round trip.
func (s *Store) timetableField(ctx context.Context, b *shaper.Bucket) (string, error) {
	plan := b.Plan()
	if plan.IsZero() {
		return "", nil
	}
	now := redis.NewTimeCmd(ctx, "time")
	if err := s.process(ctx, now); err != nil {
		return "", fmt.Errorf("bucket %q: ask the time for its windows: %w", b.Name, err)
	}
	return timetableOf(b.Name, plan, now.Val())
}

// timetableOf returns the text of the stretches from a time on.
func timetableOf(bucket string, plan schedule.Plan, now time.Time) (string, error) {
	table, err := plan.Timetable(bucket, schedule.Rate{})
	if err != nil {
		return "", fmt.Errorf("bucket %q: its windows and rates: %w", bucket, err)
	}
	const slack = time.Minute // by which the clock of Redis may step back
	return stretchesText(table.Stretches(now.Add(-slack))), nil
}

func stretchesText(stretches []schedule.Stretch, end time.Time) string {
	var text strings.Builder
	for _, s := range stretches {
		kind := "c"
		if s.Open {
			kind = "o"
		}
		if s.UntilEmpty {
			kind = "e"
		}
		fmt.Fprintf(&text, "%d %s %d %d %d %d;", s.From.UnixMicro(), kind, s.Rate.Count, s.Rate.Per.Microseconds(), microsOf(s.Opened), microsOf(s.Finish))
	}
	if !end.IsZero() {
		fmt.Fprintf(&text, "%d x 0 0 0 0;", end.UnixMicro())
	}
	return text.String()
}

func microsOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// timetableEnds reports whether a timetable has to be computed again: little of it remains, or the clock of Redis is outside of it.
func timetableEnds(text string, now int64) bool {
	entries := strings.Split(strings.TrimSuffix(text, ";"), ";")
	first, last := strings.Fields(entries[0]), strings.Fields(entries[len(entries)-1])
	if len(first) < 2 || len(last) < 2 { //nolint:mnd // a time and a kind
		return true
	}
	from, err1 := strconv.ParseInt(first[0], 10, 64)
	end, err2 := strconv.ParseInt(last[0], 10, 64)
	if err1 != nil || err2 != nil || from > now {
		return true
	}
	return last[1] == "x" && end-now < min(renewAt.Microseconds(), (end-from)/2) //nolint:mnd // half of it
}

// RenewTimetable computes the timetable of a bucket again if needed. plan and text are fields of its settings, now is the clock of Redis. It
// uses the effective plan, so the configuration of this process does not matter. It costs one round trip, or none if nothing is to be done.
func (s *Store) RenewTimetable(ctx context.Context, b *Bucket, plan, text string, now int64) error {
	if plan == "" || !timetableEnds(text, now) {
		return nil
	}
	var read schedule.Plan
	if err := json.Unmarshal([]byte(plan), &read); err != nil {
		return fmt.Errorf("bucket %q: its plan in Redis is not one of ours: %w", b.Name, err)
	}
	stretches, err := timetableOf(b.Name, read, time.UnixMicro(now))
	if err != nil {
		return err
	}
	if _, err := s.Run(ctx, lua.RenewTimetable, b.Keys.Of(lua.RenewTimetable), WakeChannel, b.Keys.Name, plan, stretches); err != nil {
		return fmt.Errorf("bucket %q: write its timetable: %w", b.Name, err)
	}
	return nil
}
