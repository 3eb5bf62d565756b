package httplimit_test

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/admission/httplimit"
)

// behind are proxies in 10.0.0.0/8, on this machine, and at 2001:db8:f::/48.
func behind(header string) httplimit.Proxies {
	return httplimit.Proxies{Header: header, Trusted: []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::ffff:127.0.0.0/104"), netip.MustParsePrefix("2001:db8:f::/48"),
	}}
}

func from(peer string, headers ...string) *http.Request {
	r := &http.Request{RemoteAddr: peer, Header: http.Header{}}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

const (
	xff  = "X-Forwarded-For"
	fwd  = "Forwarded"
	near = "10.0.0.1:80" // the proxy next to us
)

func TestClientAddr(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		header string // read
		r      *http.Request
		want   string
	}{
		"no proxy":               {"", from("192.0.2.1:9"), "192.0.2.1"},
		"IPv4 in IPv6":           {"", from("[::ffff:192.0.2.1]:9"), "192.0.2.1"},
		"a zone":                 {"", from("[fe80::1%eth0]:9"), "fe80::1"},
		"no address":             {"", from("@", xff, "192.0.2.1"), "invalid IP"},
		"not trusted":            {"", from("192.0.2.1:9", xff, "192.0.2.7"), "192.0.2.1"},
		"trusted, no header":     {"", from(near), "10.0.0.1"},
		"one proxy":              {"", from(near, xff, "192.0.2.1"), "192.0.2.1"},
		"proxy on this machine":  {"", from("127.0.0.1:80", xff, "192.0.2.1"), "192.0.2.1"},
		"proxy as mapped":        {"", from("[::ffff:10.1.1.1]:80", xff, "192.0.2.1"), "192.0.2.1"},
		"proxy in IPv6":          {"", from("[2001:db8:f::1]:80", xff, "192.0.2.1"), "192.0.2.1"},
		"a lie":                  {"", from(near, xff, "198.51.100.9, 192.0.2.1"), "192.0.2.1"},
		"a lie of a proxy":       {"", from(near, xff, "198.51.100.9, 10.9.9.9, 192.0.2.1"), "192.0.2.1"},
		"three proxies":          {"", from(near, xff, "198.51.100.9, 192.0.2.1, 10.0.0.3, 10.0.0.2"), "192.0.2.1"},
		"lines are one list":     {"", from(near, xff, "198.51.100.9", xff, "192.0.2.1,10.0.0.3", xff, "10.0.0.2"), "192.0.2.1"},
		"all trusted":            {"", from(near, xff, "10.0.0.3, 10.0.0.2"), "10.0.0.3"},
		"empty elements":         {"", from(near, xff, "192.0.2.1, , ", xff, ""), "192.0.2.1"},
		"a port":                 {"", from(near, xff, "192.0.2.1:4711"), "192.0.2.1"},
		"IPv6":                   {"", from(near, xff, "2001:db8::1"), "2001:db8::1"},
		"IPv6 with port":         {"", from(near, xff, "[2001:db8::1]:4711"), "2001:db8::1"},
		"mapped":                 {"", from(near, xff, "::ffff:192.0.2.1"), "192.0.2.1"},
		"garbage":                {"", from(near, xff, "192.0.2.1, nonsense"), "10.0.0.1"},
		"garbage of an inner":    {"", from(near, xff, "192.0.2.1, nonsense, 10.0.0.2"), "10.0.0.2"},
		"garbage further left":   {"", from(near, xff, `"=;,\, 192.0.2.1`), "192.0.2.1"},
		"unspecified":            {"", from(near, xff, "0.0.0.0"), "10.0.0.1"},
		"half a bracket":         {"", from(near, xff, "[2001:db8::1"), "10.0.0.1"},
		"more after the bracket": {"", from(near, xff, "[2001:db8::1]x"), "10.0.0.1"},
		"IPv4 in brackets":       {"", from(near, xff, "[192.0.2.1]"), "10.0.0.1"},
		"not the header read":    {"", from(near, fwd, "for=192.0.2.1"), "10.0.0.1"},
		"both, ours is read":     {"", from(near, fwd, "for=198.51.100.9", xff, "192.0.2.1"), "192.0.2.1"},

		"Forwarded":                {fwd, from(near, fwd, "for=192.0.2.1"), "192.0.2.1"},
		"Forwarded, both":          {fwd, from(near, xff, "198.51.100.9", fwd, "for=192.0.2.1"), "192.0.2.1"},
		"Forwarded, in full":       {fwd, from(near, fwd, `by=10.0.0.1;For="192.0.2.1:4711";proto=https;host="a,b;c"`), "192.0.2.1"},
		"Forwarded, IPv6":          {fwd, from(near, fwd, `for="[2001:db8::1]"`), "2001:db8::1"},
		"Forwarded, IPv6 and port": {fwd, from(near, fwd, `for="[2001:db8::1]:_http" ; proto=http`), "2001:db8::1"},
		"Forwarded, three":         {fwd, from(near, fwd, `for=198.51.100.9, for=192.0.2.1, for=10.0.0.3`, fwd, `for="10.0.0.2"`), "192.0.2.1"},
		"Forwarded, escaped":       {fwd, from(near, fwd, `for="192.0.2\.1";secret="\",\\"`), "192.0.2.1"},
		"Forwarded, empty pairs":   {fwd, from(near, fwd, `;;for=192.0.2.1; ;`), "192.0.2.1"},
		"Forwarded, an open quote": {fwd, from(near, fwd, `for=198.51.100.9;x=", for=192.0.2.1`), "192.0.2.1"},
		"Forwarded, and a quoted":  {fwd, from(near, fwd, `for="198.51.100.9, for="[2001:db8::1]:9"`), "2001:db8::1"},
		"Forwarded, by an escape":  {fwd, from(near, fwd, `for="198.51.100.9\, for="192.0.2.1"`), "192.0.2.1"},
		"Forwarded, hidden":        {fwd, from(near, fwd, `for=192.0.2.1, for=_secret`), "10.0.0.1"},
		"Forwarded, unknown":       {fwd, from(near, fwd, `for=unknown`), "10.0.0.1"},
		"Forwarded, nobody":        {fwd, from(near, fwd, `for=192.0.2.1, proto=https`), "10.0.0.1"},
		"Forwarded, twice":         {fwd, from(near, fwd, `for=192.0.2.1;for=192.0.2.2`), "10.0.0.1"},
		"Forwarded, no pair":       {fwd, from(near, fwd, `192.0.2.1`), "10.0.0.1"},
		"Forwarded, unclosed":      {fwd, from(near, fwd, `for="192.0.2.1`), "10.0.0.1"},
		"Forwarded, a quote":       {fwd, from(near, fwd, `for=192.0.2.1"`), "10.0.0.1"},
		"Forwarded, after a quote": {fwd, from(near, fwd, `for="192.0.2.1"x`), "10.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := behind(test.header).ClientAddr(test.r).String(); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// FuzzClientAddr holds that whatever a client sends, it is known by the
// address that the proxy has appended.
func FuzzClientAddr(f *testing.F) {
	for _, seed := range []string{"", `"`, `\`, `for="`, `for="\`, "192.0.2.1", ",,", "for=192.0.2.1;", "10.0.0.2, 10.0.0.3", `a="b\", c"`} {
		f.Add(seed, false)
		f.Add(seed, true)
	}
	f.Fuzz(func(t *testing.T, sent string, secondLine bool) {
		for header, entries := range map[string][]string{
			xff: {"192.0.2.77", "192.0.2.77, 10.0.0.4", "192.0.2.77:1, [2001:db8:f::2]:80"},
			fwd: {"for=192.0.2.77", `for="192.0.2.77:1";by="10.0.0.1,x\\"`, `proto=https;for="192.0.2.77", for="[2001:db8:f::2]:80"`},
		} {
			for _, entry := range entries {
				r := from(near, header, sent+", "+entry)
				if secondLine {
					r = from(near, header, sent, header, entry)
				}
				if got := behind(header).ClientAddr(r).String(); got != "192.0.2.77" {
					t.Errorf("%v: %s", r.Header, got)
				}
			}
			alone := from(near, header, sent) // no proxy of ours: anything but a panic
			if addr := behind(header).ClientAddr(alone); !addr.IsValid() || addr.Is4In6() || addr.Zone() != "" {
				t.Errorf("%v: %v", alone.Header, addr)
			}
		}
	})
}

func TestProxiesName(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		addr string
		bits int
		want string
	}{
		{"192.0.2.1", 0, "192.0.2.1"},
		{"::ffff:192.0.2.1", 0, "192.0.2.1"},
		{"2001:db8:1:2:3:4:5:6", 0, "2001:db8:1:2::/64"},
		{"2001:db8:1:2:3:4:5:6%eth0", 56, "2001:db8:1::/56"},
		{"2001:db8:1:2:3:4:5:6", 128, "2001:db8:1:2:3:4:5:6"},
		{"2001:db8:1:2:3:4:5:6", -1, "2001:db8:1:2:3:4:5:6"},
	} {
		if got := (httplimit.Proxies{IPv6Prefix: test.bits}).Name(netip.MustParseAddr(test.addr)); got != test.want {
			t.Errorf("%s with %d: %s, want %s", test.addr, test.bits, got, test.want)
		}
	}
	if got := (httplimit.Proxies{}).Name(netip.Addr{}); got != "" {
		t.Errorf("no address: %q", got)
	}
}

func TestProxiesIdentity(t *testing.T) {
	t.Parallel()
	id := behind("").Identity(from(near, xff, "2001:db8::1", "X-Tenant", "a", "X-Tenant", "b"))
	if id.Caller != "addr:2001:db8::/64" || id.IP != "2001:db8::/64" || id.Headers["X-Tenant"] != "a, b" {
		t.Errorf("%+v", id)
	}
	if id := (httplimit.Proxies{}).Identity(from("@")); id.Caller != "" || id.IP != "" {
		t.Errorf("nobody: %+v", id)
	}
	if admission.KeyCaller("10.0.0.1") == admission.AddrCaller("10.0.0.1") {
		t.Error("a key is an address")
	}
}

func TestProxiesValidate(t *testing.T) {
	t.Parallel()
	if err := behind("X-Forwarded-For").Validate(); err != nil {
		t.Error(err)
	}
	err := httplimit.Proxies{Header: "X-Real-IP", IPv6Prefix: 129, Trusted: make([]netip.Prefix, 1)}.Validate()
	if err == nil || !slices.Equal(keysOf(err), []string{"forwarded_header", "ipv6_prefix", "trusted_proxies"}) {
		t.Errorf("%v", err)
	}
}

func keysOf(err error) (keys []string) {
	for line := range strings.Lines(err.Error()) {
		key, _, _ := strings.Cut(line, ":")
		keys = append(keys, key)
	}
	return keys
}
