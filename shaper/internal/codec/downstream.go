package codec

import (
	"fmt"

	"github.com/tundish-io/tundish/shaper"
)

// DownstreamRules is what scripts obey of a bucket's answers: see lua/lib/downstream.lua. A bucket without flows is one scope.
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
	return fmt.Sprintf("%s %d %d %d %d %d", scope, b.Adapt.MaxHold.Microseconds(), b.Adapt.Floor,
		b.Breaker.Failures, b.Breaker.OpenFor.Microseconds(), b.Breaker.MaxOpen.Microseconds())
}

// ReasonWord is a reason as the scripts keep it: a word of at most 40 small letters, digits and underscores, "-" where it is none.
func ReasonWord(reason string) string {
	if reason == "" || len(reason) > 40 {
		return "-"
	}
	for _, c := range []byte(reason) {
		if c != '_' && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return "-"
		}
	}
	return reason
}
