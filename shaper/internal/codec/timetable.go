package codec

import (
	"strconv"
	"strings"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
)

// ReadHours reads the reply of timetable.view in lua/lib/timetable.lua. It returns nil if the bucket has no timetable.
func ReadHours(a *lua.Answer) *shaper.Hours {
	if a.Int("timetable") == 0 {
		return nil
	}
	return &shaper.Hours{
		Open: a.Int("hours_open") == 1, Rate: rateOf(a.Int("hours_rate_count"), a.Int("hours_rate_per")), Until: InstantOf(a.Int("hours_till")),
		Opens: InstantOf(a.Int("hours_opens")), Finish: InstantOf(a.Int("hours_finish")), FinishJobs: a.Int("hours_finish_jobs"),
		TooSlow: a.Int("hours_late") == 1, Opened: InstantOf(a.Int("hours_since")),
	}
}

// EmptiedOf reads the opening of the last window that closed because the bucket was empty, of the field window of its pace; 0 if there is
// none: see lua/lib/timetable.lua.
func EmptiedOf(window string) int64 {
	fields := strings.Fields(window)
	if len(fields) < 2 || fields[1] != "1" { //nolint:mnd // the opening, and whether it was emptied
		return 0
	}
	opened, _ := strconv.ParseInt(fields[0], 10, 64) // the script has written it
	return opened
}

func rateOf(count, per int64) admission.Rate {
	if count == 0 {
		return admission.Rate{}
	}
	return admission.Rate{Count: count, Per: time.Duration(per) * time.Microsecond, Unit: admission.UnitRequests}
}

// ParseDrain reads the text of a drain, see lua/lib/timetable.lua; nil if there is none.
func ParseDrain(text string) *shaper.DrainRun {
	const fields = 10
	parts := strings.SplitN(text, " ", fields)
	if len(parts) != fields {
		return nil
	}
	number := func(i int) int64 {
		n, _ := strconv.ParseInt(parts[i], 10, 64) // the script has written it
		return n
	}
	states := map[string]shaper.DrainState{"r": shaper.DrainRuns, "d": shaper.DrainDone, "s": shaper.DrainStopped}
	return &shaper.DrainRun{
		State: states[parts[0]], ID: parts[1], Since: InstantOf(number(2)), Rate: rateOf(number(3), number(4)), Max: number(5),
		Departed: number(6), UntilEmpty: parts[7] == "1", Ended: InstantOf(number(8)), By: parts[9],
	}
}
