package codec

import (
	"strconv"
	"strings"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
)

// lates are the numbers of Late in Redis: see timetable.LATE.
var lates = [...]shaper.Late{shaper.NotLate, shaper.LateRate, shaper.LateBehind}

// ReadHours reads what timetable.view says in lua/lib/timetable.lua, behind whether there is anything; nil if not.
func ReadHours(r *lua.Reader) *shaper.Hours {
	known := r.Int() == 1
	h := shaper.Hours{Open: r.Int() == 1}
	h.Rate = rateOf(r.Int(), r.Int())
	h.Until, h.Opens, h.Finish, h.FinishJobs = InstantOf(r.Int()), InstantOf(r.Int()), InstantOf(r.Int()), r.Int()
	if late := r.Int(); late > 0 && late < int64(len(lates)) {
		h.Late = lates[late]
	}
	if !known {
		return nil
	}
	return &h
}

// LateOf reads why a finish will not be met, of the field window of a bucket's pace: see lua/lib/timetable.lua.
func LateOf(window string) shaper.Late {
	fields := strings.Fields(window)
	const late = 2
	if len(fields) > late {
		if n, err := strconv.Atoi(fields[late]); err == nil && n >= 0 && n < len(lates) {
			return lates[n]
		}
	}
	return shaper.NotLate
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
