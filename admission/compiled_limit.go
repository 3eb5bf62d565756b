package admission

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tundish-io/tundish/lua"
)

// compiledLimit is a limit ready for use: validated, for one tier, with the arguments of its script.
type compiledLimit struct {
	Limit
	tier   string
	rev    string // limits_rev of the conf that the limit comes from; "" if it was given by value
	params Params
	args   [3]any    // a, b and full of the rule, of params
	life   int64     // microseconds: a state lives so long at most
	kind   string    // limits of one kind may be asked in one run of the script
	prefix string    // of the keys of its states
	keys   [2]string // further keys: the count of the keys, and the state that is shared above MaxKeys
	quota  int64
	window time.Duration
}

func compile(limit Limit, tier, rev string) *compiledLimit {
	f := &compiledLimit{Limit: limit.For(tier), tier: tier, rev: rev, prefix: "tundish:{l:" + limit.Name + "}:"}
	p := f.Params()
	f.params, f.args, f.life = p, [3]any{p.A, p.B, p.Full}, limit.StateLife().Microseconds()
	f.kind = fmt.Sprint(rev, " ", p.Algorithm, " ", limit.MaxKeys, " ", f.life)
	f.keys = [2]string{fmt.Sprint(f.prefix, countedKeys, f.life), f.prefix + overflowKey + tier}
	f.quota, f.window = f.Policy()
	return f
}

func (f *compiledLimit) decide(verdict, remaining, wait, reset int64) Decision {
	shadow := f.Mode == Shadow
	return Decision{
		Limit:       f.Name,
		Rate:        f.Limit.Limit,
		Allowed:     shadow || verdict == lua.Allowed,
		Shadow:      shadow,
		WouldRefuse: shadow && verdict != lua.Allowed,
		Impossible:  verdict == lua.NeverAllowed,
		Quota:       f.quota,
		Window:      f.window,
		Remaining:   remaining,
		RetryAfter:  lua.Microseconds(wait),
		ResetAfter:  lua.Microseconds(reset),
	}
}

// earlierReset returns the reset of a limit before the last requests were spent at the same instant. The arguments are what lua/allow.lua
// returns after them. Only a token bucket refills sooner if less was spent: for the other rules the result is reset itself.
func (f *compiledLimit) earlierReset(reset, slack, requests int64) int64 {
	if f.Algorithm != TokenBucket || requests == 0 {
		return reset
	}
	return lua.EarlierReset(reset, slack, requests*microTokens, f.params.A, f.params.B)
}

// unasked returns the decision that admits a caller without a question to the limit.
func (f *compiledLimit) unasked(source Source) Decision {
	d := f.decide(lua.Allowed, f.quota, 0, 0)
	d.Source = source
	return d
}

func (f *compiledLimit) exempt() Decision { return f.unasked(FromExemption) }

// same reports whether f was compiled from l.
func (f *compiledLimit) same(l *Limit) bool {
	return f.Limit.Limit == l.Limit && f.Burst == l.Burst && f.Precision == l.Precision && f.MaxKeys == l.MaxKeys && f.Algorithm == l.Algorithm &&
		f.Mode == l.Mode && f.OnStoreFailure == l.OnStoreFailure && f.OnMissing == l.OnMissing && f.SyncInterval == l.SyncInterval &&
		slices.Equal(f.Per, l.Per) && maps.Equal(f.Tiers, l.Tiers)
}

// Prefixes that no key of a caller has: such a key has no colon.
const (
	countedKeys = "keys:"
	overflowKey = "overflow:"
)

// maxCompiled bounds the limits of one name that are given by value and kept compiled: its
// tiers, usually.
const maxCompiled = 16

// compiledOf compiles a limit that is given by value, with its defaults filled in. It
// returns an error if the limit is not valid.
func (g *gate) compiledOf(limit *Limit) (*compiledLimit, error) {
	known := g.compiled.Load()
	if known != nil {
		for _, f := range *known {
			if f.same(limit) {
				return f, nil
			}
		}
	}
	if err := limit.Validate(); err != nil {
		return nil, fmt.Errorf("limit %q: %w", limit.Name, err)
	}
	// The owner of a limit may change its maps and slices afterwards.
	own := *limit
	own.Per, own.Tiers = slices.Clone(limit.Per), maps.Clone(limit.Tiers)
	f := compile(own, "", "")
	limits := []*compiledLimit{f}
	if known != nil {
		limits = append(limits, (*known)[:min(len(*known), maxCompiled-1)]...)
	}
	g.compiled.Store(&limits)
	return f, nil
}

// safeKey returns a key that its caller chose, as a part of a name in Redis. It is the key itself if that is short and of safe characters, as all
// keys of [Limit.Key] are, else a digest. It is never cut off.
func safeKey(key string) string {
	if key == "conf" || len(key) > 64 {
		return digest("chosen", key)
	}
	for i := range len(key) {
		c := key[i]
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && c != '-' && c != '_' {
			return digest("chosen", key)
		}
	}
	return key
}

// givenKey returns the key of a caller that a gateway names, in a tier. No identity has the same key: the digests of [Limit.Key] are of texts
// that begin with a digit or "tier".
func givenKey(tier, key string) string { return digest("given", tier, key) }

// digest returns 22 safe characters for texts of any length.
func digest(domain string, texts ...string) string {
	b := []byte(domain)
	for _, text := range texts {
		b = fmt.Appendf(b, ":%d:%s", len(text), text)
	}
	sum := sha256.Sum256(b)
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}
