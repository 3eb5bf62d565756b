package codec

import (
	"slices"
	"strconv"

	"github.com/tundish-io/tundish/shaper"
)

// StateCodes are the codes of the scripts, in order.
var StateCodes = [...]shaper.State{"", shaper.StateQueued, shaper.StateScheduled, shaper.StateInFlight, shaper.StateRetrying, shaper.StateDead, shaper.StateDone, shaper.StateCancelled, shaper.StateDropped}

func StateOf(code int64) shaper.State {
	if code < 1 || int(code) >= len(StateCodes) {
		return ""
	}
	return StateCodes[code]
}

// CodeOf returns the code of a state, "" for no state.
func CodeOf(state shaper.State) string {
	if state == "" {
		return ""
	}
	return strconv.Itoa(slices.Index(StateCodes[:], state))
}
