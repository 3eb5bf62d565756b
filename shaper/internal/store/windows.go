package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/schedule"
	"github.com/tundish-io/tundish/shaper"
)

// windowsAtOnce is how many windows one call reports that closed while no dispatcher ran.
const windowsAtOnce = 64

// CloseWindows reports drain windows of a bucket that have closed, as events window.closed, and maintains the tally of the next window. plan and
// events are fields of its settings; tally is a field of its counts (see lua/lib/window_tally.lua). emptied is the opening of the last window
// that closed because the bucket was empty, and now the clock of Redis. If no hook subscribes to the event, the tally is removed. It costs one
// round trip for each window to close, or none. Any number of dispatchers may call it: each window is reported once.
//
// The tally may come from an earlier plan. Only the first window of the effective plan that has not ended is tallied. A future window in the
// tally gives way to an earlier one. An open window closes now if the plan does not have it, or has it with a past end.
func (s *Store) CloseWindows(ctx context.Context, b *Bucket, plan, events, tally string, emptied, now int64) error {
	wants := slices.Contains(strings.Fields(events), string(shaper.EventWindowClosed))
	if tally == "" && (!wants || plan == "") {
		return nil
	}
	table, err := windowsOf(b.Name, plan, wants)
	if err != nil {
		return err
	}
	opened, ends := openedAndEnds(tally)
	for range windowsAtOnce {
		planned, after := int64(0), now
		if o, e := window(table, min(opened, now), emptied, opened); o == opened && (e == ends || e > now) {
			planned, after = e, e
		}
		if planned != 0 && planned == ends && now < ends && emptied != opened {
			return nil
		}
		nextOpened, nextEnds := window(table, after, emptied, opened)
		if opened == 0 && nextOpened == 0 {
			return nil
		}
		reply, err := s.Run(ctx, lua.CloseWindow, b.Keys.Of(lua.CloseWindow, ""), plan, b.Keys.Levels, b.Keys.Member, opened, planned, nextOpened, nextEnds)
		if err != nil {
			return fmt.Errorf("bucket %q: report the end of its window: %w", b.Name, err)
		}
		if changed, _ := reply.(int64); changed == 0 || nextOpened == 0 || nextEnds > now {
			return nil
		}
		opened, ends = nextOpened, nextEnds
	}
	return nil
}

// NoteLate reports that jobs will be left at a finish, by the clock of Redis, as the event finish.late. why has words separated by spaces. A finish
// is reported once, whichever dispatchers foresee it. One round trip.
func (s *Store) NoteLate(ctx context.Context, b *Bucket, finish time.Time, left int64, why, sentence string) error {
	const most = 4000 // bytes
	if len(sentence) > most {
		sentence = strings.ToValidUTF8(sentence[:most], "")
	}
	if _, err := s.Run(ctx, lua.NoteLate, b.Keys.Of(lua.NoteLate), finish.UnixMicro(), left, why, sentence); err != nil {
		return fmt.Errorf("bucket %q: report that its finish will not be met: %w", b.Name, err)
	}
	return nil
}

// windowsOf compiles a plan. Without a plan, or a hook that subscribes, there are no windows.
func windowsOf(bucket, plan string, wants bool) (*schedule.Timetable, error) {
	var read schedule.Plan
	if plan != "" && wants {
		if err := json.Unmarshal([]byte(plan), &read); err != nil {
			return nil, fmt.Errorf("bucket %q: its plan in Redis is not one of ours: %w", bucket, err)
		}
	}
	table, err := read.Timetable(bucket, schedule.Rate{})
	if err != nil {
		return nil, fmt.Errorf("bucket %q: its windows: %w", bucket, err)
	}
	return table, nil
}

// window returns the first window that ends after a time, in microseconds; zeros if there is none. It skips the window that closed because the
// bucket was empty, unless that is the window of the tally, which is still to be reported.
func window(table *schedule.Timetable, after, emptied, tallied int64) (opened, ends int64) {
	o, e := table.Window(time.UnixMicro(after))
	if opened = microsOf(o); opened != 0 && opened == emptied && opened != tallied {
		o, e = table.Window(e)
	}
	return microsOf(o), microsOf(e)
}

func openedAndEnds(tally string) (opened, ends int64) {
	fields := strings.Fields(tally)
	if len(fields) < 2 { //nolint:mnd // the two
		return 0, 0
	}
	opened, _ = strconv.ParseInt(fields[0], 10, 64) // the script has written them
	ends, _ = strconv.ParseInt(fields[1], 10, 64)
	return opened, ends
}
