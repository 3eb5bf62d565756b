package shaper

import (
	"slices"
	"strconv"
)

// stateCodes are the codes of the scripts, in order.
var stateCodes = [...]State{"", StateQueued, StateScheduled, StateInFlight, StateRetrying, StateDead, StateDone, StateCancelled, StateDropped}

func stateOf(code int64) State {
	if code < 1 || int(code) >= len(stateCodes) {
		return ""
	}
	return stateCodes[code]
}

// codeOf is the code of a state, "" for no state.
func codeOf(state State) string {
	if state == "" {
		return ""
	}
	return strconv.Itoa(slices.Index(stateCodes[:], state))
}
