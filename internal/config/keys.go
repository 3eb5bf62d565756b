package config

import (
	"cmp"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/admission/httplimit"
	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/setting"
	"github.com/tundish-io/tundish/shaper"
)

// keys checks that each key is valid and that no name or secret is there twice.
func (l *loader) keys(s *settings) {
	names, sums := map[string]place{}, map[digest]place{}
	l.callers(s)
	var buckets []string
	for _, b := range s.Buckets {
		buckets = append(buckets, b.Name)
	}
	for i, key := range s.Keys {
		p := at("keys").element(i, key.Name)
		l.unique(p, key.Name, names)
		l.keySums(p, key.SHA256, sums)
		l.key(p, key)
		if !slices.Contains(key.Buckets, apikey.AllBuckets) {
			l.references(p.key("buckets"), key.Buckets, buckets, "buckets")
		}
		if tiers := limitTiers(s); key.Tier != "" && !slices.Contains(tiers, key.Tier) {
			l.fail(p.key("tier"), literal(key.Tier), "no [[limits]] has this tier%s", DidYouMean(key.Tier, tiers))
		}
	}
}

// callers refuses two callers with the same mark in Redis: each would see the jobs of the other. There are 10^12 marks.
func (l *loader) callers(s *settings) {
	marks := map[string]string{}
	for i, key := range s.Keys {
		caller := cmp.Or(key.Caller, key.Name)
		mark := shaper.CallerMark(caller)
		if other, taken := marks[mark]; taken && other != caller {
			l.fail(at("keys").element(i, key.Name).key("caller"), literal(caller), "looks like %q in Redis: give one of the two another caller", other)
		}
		marks[mark] = caller
	}
}

// key checks one key by itself.
func (l *loader) key(p place, key keySettings) {
	if !admission.ValidName(key.Name) {
		l.fail(p.key("name"), literal(key.Name), "want lower-case letters, digits, _ . and -, at most 63, the first a letter or digit")
	}
	if key.Caller != "" && !admission.ValidName(key.Caller) {
		l.fail(p.key("caller"), literal(key.Caller), "want lower-case letters, digits, _ . and -, at most 63, the first a letter or digit")
	}
	l.keyRoles(p.key("roles"), key.Roles)
	l.keyBuckets(p.key("buckets"), key)
	l.keyParts(p.key("flows"), key.Flows, key.Roles)
	l.keyParts(p.key("groups"), key.Groups, key.Roles)
	if key.Tier != "" && !admission.ValidName(key.Tier) {
		l.fail(p.key("tier"), literal(key.Tier), "want lower-case letters, digits, _ . and -, at most 63, the first a letter or digit")
	}
}

// maxKeySecrets bounds the secrets of a key: a second one while clients change to it.
const maxKeySecrets = 2

func (l *loader) keySums(p place, list digests, sums map[digest]place) {
	p = p.key("sha256")
	switch {
	case len(list) == 0:
		l.fail(p, "", "is missing: `producer key new` makes a secret and prints its hash")
	case len(list) > maxKeySecrets:
		l.fail(p, "", "has %d secrets: want one, or two while clients change to the other", len(list))
	}
	for _, sum := range list {
		first, taken := sums[sum]
		switch {
		case taken && first == p:
			l.fail(p, "", "has one secret twice")
			return
		case taken:
			l.fail(p, "", "%s has the same digest: give each key a secret of its own", strings.TrimSuffix(first.path, ".sha256"))
			return
		}
		sums[sum] = p
	}
}

func (l *loader) keyRoles(p place, roles []string) {
	if len(roles) == 0 {
		l.fail(p, "", "is missing: want the roles of the key, such as [%q]", apikey.RoleEnqueue)
	}
	var names []string
	for _, role := range apikey.Roles() {
		names = append(names, string(role))
	}
	for i, role := range roles {
		l.oneOf(p.element(i, ""), role, names...)
		if slices.Contains(roles[:i], role) {
			l.fail(p.element(i, ""), literal(role), "is in the list twice")
		}
	}
}

// keyBuckets requires buckets for the roles that do nothing without one. A key with the role
// read may be there for metrics alone.
func (l *loader) keyBuckets(p place, key keySettings) {
	needs := func(role string) bool {
		return role == string(apikey.RoleEnqueue) || role == string(apikey.RoleOperate) || role == string(apikey.RoleAdmin)
	}
	switch {
	case len(key.Buckets) == 0 && slices.ContainsFunc(key.Roles, needs):
		l.fail(p, "", "is missing: name the buckets that the key is for (--bucket at the command line), or %q for all of them", apikey.AllBuckets)
	case len(key.Buckets) > 1 && slices.Contains(key.Buckets, apikey.AllBuckets):
		l.fail(p, literal(key.Buckets), "%q is all of them: leave the others out", apikey.AllBuckets)
	}
}

// keyParts requires names of flows or groups, which may be any text, for a key that they restrict.
func (l *loader) keyParts(p place, names, roles []string) {
	for i, name := range names {
		if name == "" || len(name) > shaper.MaxFlowBytes {
			l.fail(p.element(i, ""), literal(name), "want a name of 1 to %d bytes", shaper.MaxFlowBytes)
		} else if slices.Contains(names[:i], name) {
			l.fail(p.element(i, ""), literal(name), "is in the list twice")
		}
	}
	switch {
	case len(names) == 0:
	case slices.Contains(roles, string(apikey.RoleAdmin)):
		l.fail(p, literal(names), "would not bind the role %s, which may change every flow: leave one of them out", apikey.RoleAdmin)
	case slices.Contains(roles, string(apikey.RoleOperate)):
		l.fail(p, literal(names), "would not bind the role %s, which may pause every flow: leave one of them out", apikey.RoleOperate)
	case !slices.Contains(roles, string(apikey.RoleEnqueue)):
		l.fail(p, literal(names), "binds the role %s only, which the key does not have", apikey.RoleEnqueue)
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

// CheckKey returns [Faults] if a new key would be invalid in a configuration. It does not check whether its buckets and its tier exist.
func CheckKey(key apikey.Key) error {
	l := newLoader(Options{})
	l.key(place{}, settingsOf(key))
	if len(l.faults) > 0 {
		return l.faults
	}
	return nil
}

// WriteKey writes a key as a table of a configuration.
func WriteKey(w io.Writer, key apikey.Key) error {
	text := "[[keys]]\n"
	leaves(setting.Keys(reflect.TypeFor[keySettings]()), reflect.ValueOf(settingsOf(key)), place{}, "", nil, func(f leaf) {
		if !f.value.IsZero() {
			text += f.name + " = " + f.literal() + "\n"
		}
	})
	_, err := io.WriteString(w, text)
	return err
}

func settingsOf(key apikey.Key) keySettings {
	s := keySettings{Name: key.Name, Caller: key.Caller, Buckets: key.Buckets, Flows: key.Flows, Groups: key.Groups, Tier: key.Tier}
	for _, sum := range key.SHA256 {
		s.SHA256 = append(s.SHA256, digest(sum[:]))
	}
	for _, role := range key.Roles {
		s.Roles = append(s.Roles, string(role))
	}
	return s
}

// forwarding checks how the client's address is found behind proxies.
func (l *loader) forwarding(p Producer) {
	if p.ForwardedHeader == "" {
		l.fail(at("producer.forwarded_header"), `""`, "want %s or %s", httplimit.XForwardedFor, httplimit.Forwarded)
	}
	inRange(l, at("producer.ipv6_prefix"), p.IPv6Prefix, 1, 128)
	l.failAll(at("producer"), httplimit.Proxies{
		Trusted: p.TrustedProxies, Header: p.ForwardedHeader, IPv6Prefix: p.IPv6Prefix,
	}.Validate())
}

// SecretValue returns the secret of a text of a command line. "env:NAME" is the value of a variable, "file:/path" the contents of a file, as in every
// secret of a configuration. Any other text is the secret itself.
func SecretValue(o Options, text string) (string, error) { return newLoader(o).resolve(text, place{}) }

// ClientKey returns the API key that a client sends: flag, otherwise TUNDISH_KEY, otherwise the contents of the file that TUNDISH_KEY_FILE names,
// otherwise "". The flag and the variable may be "env:NAME" or "file:/path", as every secret may.
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
		secret, err = l.secretFile(file, place{})
	} else {
		secret, err = l.resolve(text, place{})
	}
	if err != nil {
		return "", Faults{{File: from, Reason: err.Error()}}
	}
	return Secret(secret), nil
}
