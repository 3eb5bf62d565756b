package codec

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
)

// DownstreamRules returns the rules by which scripts react to responses of a bucket: see lua/lib/downstream.lua. A bucket without flows is one
// scope.
func DownstreamRules(b *shaper.Bucket) string {
	scope := "n"
	switch {
	case b.Adapt.Scope == shaper.ScopePool && b.Pool != nil:
		scope = "p"
	case b.Adapt.Scope == shaper.ScopeFlow && b.Flow != nil:
		scope = "f"
	case b.Adapt.Scope == shaper.ScopeFlow, b.Adapt.Scope == shaper.ScopeBucket:
		scope = "b"
	}
	return fmt.Sprintf("%s %d %d %d %d %d %d", scope, b.Adapt.MaxHold.Microseconds(), b.Adapt.Floor,
		b.Breaker.Failures, b.Breaker.OpenFor.Microseconds(), b.Breaker.MaxOpen.Microseconds(), b.Breaker.DisableAfter.Microseconds())
}

// ShownDownstreamRules returns the rules of DownstreamRules as people configure them, such as "scope flow, max_hold 1h0m0s, ...". A text that it
// cannot parse is returned as it is.
func ShownDownstreamRules(text string) string {
	scopes := map[string]shaper.Scope{"n": "none", "p": shaper.ScopePool, "f": shaper.ScopeFlow, "b": shaper.ScopeBucket}
	words := strings.Fields(text)
	names := []string{"scope", "max_hold", "floor", "failures", "open_for", "max_open", "disable_after"}
	if len(words) != len(names) || scopes[words[0]] == "" {
		return text
	}
	shown := []string{names[0] + " " + string(scopes[words[0]])}
	for i, word := range words[1:] {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return text
		}
		value := word
		switch names[i+1] {
		case "floor":
			value += "%"
		case "failures":
		default:
			value = (time.Duration(n) * time.Microsecond).String()
		}
		shown = append(shown, names[i+1]+" "+value)
	}
	return strings.Join(shown, ", ")
}

// noReason replaces a reason that is not a valid word.
const noReason = "-"

// ReasonWord returns a reason as the scripts keep it: at most 40 lowercase letters, digits and underscores. Any other reason becomes "-".
func ReasonWord(reason string) string {
	if reason == "" || len(reason) > 40 {
		return noReason
	}
	for _, c := range []byte(reason) {
		if c != '_' && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return noReason
		}
	}
	return reason
}

// downstreamNumbers is how many numbers the text of a scope begins with.
const downstreamNumbers = 13

// The breaker states in a scope's text, by their numbers in lua/lib/downstream.lua.
var breakerStates = []shaper.BreakerState{shaper.BreakerClosed, shaper.BreakerOpen, shaper.BreakerHalfOpen}

// ParseDownstream parses the text of a scope, as lua/lib/downstream.lua does. offset is the difference from the server's clock to the text's, in
// microseconds. configured is the scope's effective rate without its downstream, zero if unknown. It returns nil for any other text.
func ParseDownstream(text string, offset int64, configured admission.Rate) *shaper.Downstream {
	fields := strings.Split(text, ",")
	if len(fields) < downstreamNumbers+1 {
		return nil
	}
	last := len(fields) - 1
	numbers := make([]int64, last)
	for i, field := range fields[:last] {
		n, err := strconv.ParseUint(field, 10, 63)
		if err != nil {
			return nil
		}
		numbers[i] = int64(n)
	}
	instant := func(micros int64) time.Time {
		if micros == 0 {
			return time.Time{}
		}
		return time.UnixMicro(micros - offset)
	}
	d := &shaper.Downstream{HeldUntil: instant(numbers[0]), Factor: 1, Breaker: shaper.BreakerClosed, Failures: numbers[4], ChangedAt: instant(numbers[12])}
	if state := numbers[3]; state < int64(len(breakerStates)) {
		d.Breaker = breakerStates[state]
	}
	if d.Breaker != shaper.BreakerClosed {
		d.OpenSince = instant(numbers[10])
	}
	if reason := ReasonWord(fields[last]); reason != noReason {
		d.Reason = reason
	}
	// Scripts obey the adaptive rate only if it is the slower one.
	adaptive := admission.Rate{Count: numbers[1], Per: lua.Microseconds(numbers[2]), Unit: admission.UnitRequests}
	if adaptive.Count == 0 || adaptive.Per <= 0 {
		return d
	}
	if configured.Count <= 0 || configured.Per <= 0 {
		d.Rate = adaptive
	} else if factor := adaptive.PerSecond() / configured.PerSecond(); factor < 1 {
		d.Rate, d.Factor = adaptive, factor
	}
	return d
}
