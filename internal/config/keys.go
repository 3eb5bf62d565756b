package config

import (
	"io"
	"reflect"
	"slices"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/httpapi"
)

// keys wants each key to be one that can be used, and to be there once.
func (l *loader) keys(s *settings) {
	names, sums := map[string]place{}, map[digest]place{}
	var buckets []string
	for _, b := range s.Buckets {
		buckets = append(buckets, b.Name)
	}
	for i, key := range s.Keys {
		p := at("keys").element(i, key.Name)
		l.unique(p, key.Name, names)
		l.keySum(p, key.SHA256, sums)
		l.key(p, key)
		if !slices.Contains(key.Buckets, httpapi.AllBuckets) {
			l.references(p.key("buckets"), key.Buckets, buckets, "buckets")
		}
		if tiers := limitTiers(s); key.Tier != "" && !slices.Contains(tiers, key.Tier) {
			l.fail(p.key("tier"), literal(key.Tier), "no [[limits]] has this tier%s", didYouMean(key.Tier, tiers))
		}
	}
}

// key checks what is to be known of a key alone.
func (l *loader) key(p place, key keySettings) {
	if !admission.ValidName(key.Name) {
		l.fail(p.key("name"), literal(key.Name), "want lower-case letters, digits, _ . and -, at most 63, the first a letter or digit")
	}
	l.keyRoles(p.key("roles"), key.Roles)
	l.keyBuckets(p.key("buckets"), key)
	if key.Tier != "" && !admission.ValidName(key.Tier) {
		l.fail(p.key("tier"), literal(key.Tier), "want lower-case letters, digits, _ . and -, at most 63, the first a letter or digit")
	}
}

func (l *loader) keySum(p place, sum digest, sums map[digest]place) {
	if sum == "" {
		l.fail(p.key("sha256"), "", "is missing: `producer key new` makes a secret and prints its hash")
		return
	}
	if first, taken := sums[sum]; taken {
		l.fail(p.key("sha256"), "", "%s has the same: two keys with one secret cannot be told apart", first.path)
		return
	}
	sums[sum] = p
}

func (l *loader) keyRoles(p place, roles []string) {
	if len(roles) == 0 {
		l.fail(p, "", "is missing: say what the key may do, such as [%q]", httpapi.RoleEnqueue)
	}
	var names []string
	for _, role := range httpapi.Roles() {
		names = append(names, string(role))
	}
	for i, role := range roles {
		l.oneOf(p.element(i, ""), role, names...)
		if slices.Contains(roles[:i], role) {
			l.fail(p.element(i, ""), literal(role), "is in the list twice")
		}
	}
}

// keyBuckets wants buckets where a role is nothing without: who reads may be
// there for metrics alone.
func (l *loader) keyBuckets(p place, key keySettings) {
	needs := func(role string) bool {
		return role == string(httpapi.RoleEnqueue) || role == string(httpapi.RoleAdmin)
	}
	switch {
	case len(key.Buckets) == 0 && slices.ContainsFunc(key.Roles, needs):
		l.fail(p, "", "is missing: name the [[buckets]] that the key is for, or say [%q] for all", httpapi.AllBuckets)
	case len(key.Buckets) > 1 && slices.Contains(key.Buckets, httpapi.AllBuckets):
		l.fail(p, literal(key.Buckets), "%q is all of them: leave the others out", httpapi.AllBuckets)
	}
}

// limitTiers lists the tiers that limits have.
func limitTiers(s *settings) []string {
	var tiers []string
	for _, limit := range s.Limits {
		for tier := range limit.Tiers {
			tiers = append(tiers, tier)
		}
	}
	slices.Sort(tiers)
	return slices.Compact(tiers)
}

// keyTiers lists the tiers that keys have.
func keyTiers(s *settings) []string {
	var tiers []string
	for _, key := range s.Keys {
		tiers = append(tiers, key.Tier)
	}
	return tiers
}

// CheckKey returns [Faults] where a new key could not stand in a configuration.
// Whether its buckets and its tier exist is not looked at.
func CheckKey(key httpapi.Key) error {
	l := newLoader(Options{})
	l.key(place{}, settingsOf(key))
	if len(l.faults) > 0 {
		return l.faults
	}
	return nil
}

// WriteKey writes a key as the table that stands in a configuration.
func WriteKey(w io.Writer, key httpapi.Key) error {
	text := "[[keys]]\n"
	for _, leaf := range leaves(reflect.ValueOf(settingsOf(key)), place{}, "") {
		if !leaf.value.IsZero() {
			text += leaf.name + " = " + literal(leaf.value.Interface()) + "\n"
		}
	}
	_, err := io.WriteString(w, text)
	return err
}

func settingsOf(key httpapi.Key) keySettings {
	s := keySettings{Name: key.Name, SHA256: digest(key.SHA256[:]), Buckets: key.Buckets, Tier: key.Tier}
	for _, role := range key.Roles {
		s.Roles = append(s.Roles, string(role))
	}
	return s
}

// forwarding checks how the client's address is found behind proxies.
func (l *loader) forwarding(p Producer) {
	if p.ForwardedHeader == "" {
		l.fail(at("producer.forwarded_header"), `""`, "want %s or %s", admission.XForwardedFor, admission.Forwarded)
	}
	inRange(l, at("producer.ipv6_prefix"), p.IPv6Prefix, 1, 128)
	l.failAll(at("producer"), admission.Proxies{
		Trusted: p.TrustedProxies, Header: p.ForwardedHeader, IPv6Prefix: p.IPv6Prefix,
	}.Validate())
}

// SecretValue is what a text of a command line says: the value itself, or what is in the
// variable or the file where it says "env:NAME" or "file:/path", as every secret of a
// configuration may.
func SecretValue(o Options, text string) (string, error) { return newLoader(o).resolve(text) }

// ClientKey is the API key that a client sends: flag, else TUNDISH_KEY, else
// what is in the file that TUNDISH_KEY_FILE names, else "". The flag and the
// variable may say "env:NAME" or "file:/path", as every secret may.
func ClientKey(o Options, flag string) (Secret, error) {
	l := newLoader(o)
	text, from := flag, "--key"
	if text == "" {
		text, from = l.env[envKey], "env "+envKey
	}
	var secret string
	var err error
	if file := l.env[envKey+"_FILE"]; text == "" && file != "" {
		from = "env " + envKey + "_FILE"
		secret, err = l.secretFile(file)
	} else {
		secret, err = l.resolve(text)
	}
	if err != nil {
		return "", Faults{{File: from, Reason: err.Error()}}
	}
	return Secret(secret), nil
}
