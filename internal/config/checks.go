package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

func inRange[T int | int64 | size | time.Duration](l *loader, p place, value, low, high T) {
	if value < low || value > high {
		l.fail(p, literal(value), "want %s to %s", bound(low), bound(high))
	}
}

func bound(v any) string {
	switch v := v.(type) {
	case time.Duration:
		return brief(v)
	case size:
		return literal(v)
	}
	return fmt.Sprint(v)
}

func (l *loader) oneOf(p place, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		l.fail(p, literal(value), "want %s%s", strings.Join(allowed, ", "), DidYouMean(value, allowed))
	}
}

// listen requires an address; if there is a reason in loopbackOnly, one of this machine.
func (l *loader) listen(p place, address, loopbackOnly string) {
	host, port, err := net.SplitHostPort(address)
	_, numberErr := strconv.ParseUint(port, 10, 16)
	switch {
	case err != nil || numberErr != nil:
		l.fail(p, literal(address), `want host:port with a port of 0 to 65535, such as "127.0.0.1:8080"`)
	case loopbackOnly != "" && !isLoopback(host):
		l.fail(p, literal(address), `is beyond loopback: %s; want "127.0.0.1:%s"`, loopbackOnly, port)
	}
}

// isLoopback reports whether only this machine reaches what listens on a host.
func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// webhookURL requires an absolute HTTP URL without credentials in its authority.
func (l *loader) webhookURL(p place, text string) {
	u, err := url.Parse(text)
	shown := literal(SecretURL(text))
	switch {
	case text == "":
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		l.fail(p, shown, `want "https://host/path" or "http://host/path"`)
	case u.User != nil:
		l.fail(p, shown, "want no user or password in the URL")
	case u.Fragment != "":
		l.fail(p, shown, `want no "#" in the URL: the part behind it would not be sent`)
	default:
		if _, err := shaper.OriginOf(u); err != nil {
			l.fail(p, shown, "%v", err)
		}
	}
}

// references checks that each name is the name of one of the tables, and is there
// once.
func (l *loader) references(p place, names, tables []string, table string) {
	seen := map[string]bool{}
	known := map[string]bool{}
	for _, name := range tables {
		known[name] = true
	}
	for i, name := range names {
		switch {
		case !known[name]:
			l.fail(p.element(i, ""), literal(name), "no [[%s]] has this name%s", table, DidYouMean(name, tables))
		case seen[name]:
			l.fail(p.element(i, ""), literal(name), "is in the list twice")
		}
		seen[name] = true
	}
}

// unique requires a name that no earlier element has.
func (l *loader) unique(p place, name string, names map[string]place) {
	first, taken := names[name]
	if taken && name != "" {
		l.fail(p.key("name"), literal(name), "%s has this name already", first.path)
	}
	if !taken {
		names[name] = p
	}
}

// firstName wants a first name of a renamed bucket that no other bucket has, or had first.
func (l *loader) firstName(s *settings, i int, p place) {
	first := s.Buckets[i].RenamedFrom
	if first == "" {
		return
	}
	for j := range s.Buckets {
		if other := &s.Buckets[j]; j != i && (other.Name == first || j < i && other.RenamedFrom == first) {
			l.fail(p.key("renamed_from"), literal(first), "is the name of %s: the two would have the same jobs", at("buckets").element(j, other.Name).shown)
			return
		}
	}
}

// failAll notes the joined errors of a limit or a bucket. Each begins
// with a key and mostly goes on with the value.
func (l *loader) failAll(p place, err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			l.failAll(p, err)
		}
		return
	}
	if err == nil {
		return
	}
	path, reason, _ := strings.Cut(err.Error(), ": ")
	if tier, ok := strings.CutPrefix(path, "tiers."); ok {
		p = p.key("tiers").key(tier)
		reason = strings.TrimPrefix(reason, "tier "+tier+": ")
	} else {
		for key := range strings.SplitSeq(path, ".") {
			p = p.keyOrElement(key)
		}
	}
	value, rest, ok := strings.Cut(reason, ": ")
	if quoted, err := strconv.QuotedPrefix(reason); err == nil {
		value = quoted
		rest, ok = strings.CutPrefix(reason[len(quoted):], ": ")
	}
	if d, err := parseDuration(value); err == nil {
		value = literal(d)
	}
	if ok && (value[0] == '"' || !strings.Contains(value, " ")) {
		l.fail(p, value, "%s", rest)
		return
	}
	l.fail(p, "", "%s", reason)
}

// set reports whether the file sets a key, or a key in the table at that place.
func (l *loader) set(p place) bool {
	_, ok := l.doc.lines[p.path]
	return ok
}
