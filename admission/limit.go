package admission

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/textproto"
	"regexp"
	"slices"
	"strings"
	"time"
)

var namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,62}$`)

// ValidName reports whether s may name a bucket, a limit or a tier.
func ValidName(s string) bool { return namePattern.MatchString(s) }

// Mode says whether a limit's refusals are enforced.
type Mode string

// The modes.
const (
	Enforce Mode = "enforce"
	Shadow  Mode = "shadow" // decides and counts, but refuses no caller
)

// OnStoreFailure selects the decision of a limit while Redis is unavailable.
type OnStoreFailure string

// Answers of a limit while Redis is unavailable.
const (
	Closed OnStoreFailure = "closed" // an error: no caller is admitted
	Open   OnStoreFailure = "open"   // everybody is admitted, and counted
	Local  OnStoreFailure = "local"  // each instance applies its share of the limit by itself
)

// OnMissing selects the decision of a limit for a caller without the identity that the limit counts by.
type OnMissing string

// Answers of a limit for a caller that is not fully known.
const (
	Refuse OnMissing = "refuse" // an error of the request: [*MissingIdentityError]
	Share  OnMissing = "share"  // all such callers count together
	Exempt OnMissing = "exempt" // the limit is not asked
)

// Bounds of [Limit.SyncInterval].
const (
	MinSyncInterval = 10 * time.Millisecond
	MaxSyncInterval = 10 * time.Second
)

// Bounds of [Limit.MaxKeys].
const (
	DefaultMaxKeys = 100_000
	MaxMaxKeys     = 10_000_000
)

// Limit is an admission rule. It holds no state; its maps and slices are not
// changed after it is made.
type Limit struct {
	Name      string    `setting:"name"`      // matches ^[a-z0-9][a-z0-9_.-]{0,62}$
	Algorithm Algorithm `setting:"algorithm"` // "" means TokenBucket
	Per       []string  `setting:"per"`       // PerCaller, PerIP, PerFlow, PerHeader + a name; empty counts everybody together
	Limit     Rate      `setting:"limit"`     // refill of a bucket, or requests in a window
	Burst     int64     `setting:"burst"`     // TokenBucket only: tokens that a full bucket holds; 0 means Limit.Count
	Precision int64     `setting:"precision"` // SlidingWindowCounter only: pieces of a window, 1 to 100; 0 means 1

	// Tiers replace Limit for callers of a tier. Burst is scaled alike.
	Tiers map[string]Rate `setting:"tiers"`

	// MaxKeys bounds the keys for which the limit has a state, on its own and in each
	// bucket: 1 to 10,000,000; 0 means DefaultMaxKeys. A caller above it counts
	// together with all others above it, under one key for each tier
	// ([Decision.Overflow]). Of a key that expired the place may be free only after as
	// long again as a state can live, [Limit.StateLife].
	MaxKeys int64 `setting:"max_keys"`

	Mode           Mode           `setting:"mode"`             // "" means Enforce
	OnStoreFailure OnStoreFailure `setting:"on_store_failure"` // "" means Closed
	OnMissing      OnMissing      `setting:"on_missing"`       // "" means Refuse

	// SyncInterval, if not 0, lets a [Limiter] take the worth of several requests at once, and give them out by itself for that time. So Redis gets
	// fewer questions. A window as long as the limit's admits at most what the limit admits in a window that is longer by SyncInterval. Measured with
	// four instances and 200 ms: 101 to 112 % of a limit per second. 10 ms to 10 s. The enqueue script does not use it.
	SyncInterval time.Duration `setting:"sync_interval"`
}

// WithDefaults returns the limit with its empty fields filled in.
func (l Limit) WithDefaults() Limit {
	if l.Algorithm == "" {
		l.Algorithm = TokenBucket
	}
	if l.Burst == 0 && l.Algorithm.HasBurst() {
		l.Burst = l.Limit.Count
	}
	if l.Precision == 0 {
		l.Precision = 1
	}
	if l.MaxKeys == 0 {
		l.MaxKeys = DefaultMaxKeys
	}
	if l.Mode == "" {
		l.Mode = Enforce
	}
	if l.OnStoreFailure == "" {
		l.OnStoreFailure = Closed
	}
	if l.OnMissing == "" {
		l.OnMissing = Refuse
	}
	return l
}

// For returns the limit as it applies to callers of a tier. If it has no such tier, that is
// the limit itself.
func (l Limit) For(tier string) Limit {
	rate, ok := l.Tiers[tier]
	if !ok {
		return l
	}
	return l.at(rate)
}

// StateLife bounds the time from the last write of a state of the limit, for
// callers of any tier, until it expires.
func (l Limit) StateLife() time.Duration {
	longest := l.stateLife()
	for _, rate := range l.Tiers {
		longest = max(longest, l.at(rate).stateLife())
	}
	return longest
}

func (l Limit) stateLife() time.Duration {
	const slack = 4 * time.Second // a clock that jitters, the second more that scripts give, and rounding
	rule, _ := l.Algorithm.rule()
	_, window := rule.policy(l)
	if l.Algorithm == SlidingWindowCounter {
		window += window / time.Duration(max(l.Precision, 1)) // the piece that fades
	}
	return window.Truncate(time.Second) + slack
}

// at returns the limit with another rate, and its burst scaled alike.
func (l Limit) at(rate Rate) Limit {
	if l.Algorithm.HasBurst() && !l.Limit.IsZero() {
		l.Burst = max(int64(math.Round(float64(l.Burst)*rate.PerSecond()/l.Limit.PerSecond())), 1)
	}
	l.Limit = rate
	return l
}

// Headers lists the canonical names of the headers by which the limits count.
func Headers(limits []Limit) []string {
	var names []string
	for _, l := range limits {
		for _, per := range l.Per {
			if name := HeaderOf(per); name != "" && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// Validate reports every fault of the limit, joined, or nil. Each begins with
// the key of the configuration. It expects the defaults to be filled in.
func (l Limit) Validate() error {
	var errs []error
	fail := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...)))
	}
	if !ValidName(l.Name) {
		fail("name", "%q: want %s", l.Name, namePattern)
	}
	if !slices.Contains(Algorithms(), l.Algorithm) {
		fail("algorithm", "%q: want one of %s", l.Algorithm, join(Algorithms()))
	}
	l.validatePer(fail)
	if l.MaxKeys < 1 || l.MaxKeys > MaxMaxKeys {
		fail("max_keys", "%d: want 1 to %d", l.MaxKeys, MaxMaxKeys)
	}
	oneOf(fail, "mode", l.Mode, Enforce, Shadow)
	oneOf(fail, "on_store_failure", l.OnStoreFailure, Closed, Open, Local)
	oneOf(fail, "on_missing", l.OnMissing, Refuse, Share, Exempt)
	if l.SyncInterval != 0 && (l.SyncInterval < MinSyncInterval || l.SyncInterval > MaxSyncInterval) {
		fail("sync_interval", "%s: want %s to %s, or 0s to ask each time", l.SyncInterval, MinSyncInterval, MaxSyncInterval)
	}
	l.validateRate(fail)
	for _, tier := range slices.Sorted(maps.Keys(l.Tiers)) {
		if !ValidName(tier) {
			fail("tiers", "%q: want %s", tier, namePattern)
			continue
		}
		l.For(tier).validateRate(func(key, format string, args ...any) {
			if key == "limit" {
				key = "tiers." + tier
			}
			fail(key, "tier %s: %s", tier, fmt.Sprintf(format, args...))
		})
	}
	return errors.Join(errs...)
}

func (l Limit) validatePer(fail failFunc) {
	seen := map[string]bool{}
	for _, per := range l.Per {
		header, isHeader := strings.CutPrefix(per, PerHeader)
		switch {
		case isHeader && !validHeaderName(header):
			fail("per", "%q: want the name of a header, such as %sX-Tenant", per, PerHeader)
		case !isHeader && per != PerCaller && per != PerIP && per != PerFlow:
			fail("per", "%q: want %s, %s, %s or %sX-Name", per, PerCaller, PerIP, PerFlow, PerHeader)
		case seen[strings.ToLower(per)]:
			fail("per", "%q: is given twice", per)
		}
		seen[strings.ToLower(per)] = true
	}
}

// validHeaderName reports whether s is a token of RFC 9110 that may name a
// header.
func validHeaderName(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	for _, c := range s {
		if !strings.ContainsRune("!#$%&'*+-.^_`|~", c) && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			return false
		}
	}
	return textproto.CanonicalMIMEHeaderKey(s) != ""
}

func (l Limit) validateRate(fail failFunc) {
	rateErr := l.Limit.Validate()
	if rateErr != nil {
		fail("limit", "%v", rateErr)
	}
	rule, known := l.Algorithm.rule()
	switch {
	case !known:
	case !rule.burst && l.Burst != 0:
		fail("burst", "%d: is for %s only, leave it out with %s", l.Burst, TokenBucket, l.Algorithm)
	case !rule.precision && l.Precision != 1:
		fail("precision", "%d: is for %s only, leave it out with %s", l.Precision, SlidingWindowCounter, l.Algorithm)
	default:
		rule.validate(l, rateErr == nil, fail)
	}
}

func oneOf[T ~string](fail failFunc, key string, value T, allowed ...T) {
	if !slices.Contains(allowed, value) {
		names := make([]string, len(allowed))
		for i, a := range allowed {
			names[i] = string(a)
		}
		fail(key, "%q: want %s", value, strings.Join(names, ", "))
	}
}
