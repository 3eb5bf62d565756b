package shaper

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// Origin is the other end of a connection: scheme, host and port of a URL, in one canonical form. Origins are comparable.
type Origin struct {
	Scheme string // in lower case

	// Host is a name in lower-case ASCII without a trailing dot, or an address without brackets. An IPv4 address mapped into IPv6 becomes the IPv4
	// address.
	Host string

	// Port is the port of the URL, or else the scheme's own: 80 for http, 443 for https, 0 for others.
	Port uint16
}

// Bounds of DNS.
const (
	maxHostBytes  = 253
	maxLabelBytes = 63
)

// hostProfile maps names as browsers do (the WHATWG URL standard): capitals, full-width and circled characters, and other full stops.
var hostProfile = idna.New(
	idna.MapForLookup(), idna.BidiRule(), idna.StrictDomainName(false), idna.CheckHyphens(false), idna.Transitional(false),
)

var (
	errScheme  = errors.New("is not absolute: want a URL that begins with a scheme, such as https://")
	errNoHost  = errors.New("has no host")
	errBadHost = errors.New("has a host that cannot be: want a name of the DNS, or an IP address")
	errNumber  = errors.New("has a host that looks like an IP address and is none: write all four numbers, in decimal")
	errPort    = errors.New("has a port that cannot be: want 1 to 65535")
)

// OriginOf returns the origin of an absolute URL. The error does not repeat the URL, which may hold secrets.
func OriginOf(u *url.URL) (Origin, error) {
	o := Origin{Scheme: strings.ToLower(u.Scheme)}
	if o.Scheme == "" {
		return Origin{}, errScheme
	}
	var err error
	if o.Host, err = canonicalHost(u); err != nil {
		return Origin{}, err
	}
	port := u.Port()
	if port == "" {
		o.Port = ownPort(o.Scheme)
		return o, nil
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return Origin{}, errPort
	}
	o.Port = uint16(n)
	return o, nil
}

func ownPort(scheme string) uint16 {
	switch scheme {
	case "http":
		return 80
	case "https":
		return 443
	}
	return 0
}

// Address returns the host and port to connect to, host:port.
func (o Origin) Address() string { return net.JoinHostPort(o.Host, strconv.Itoa(int(o.Port))) }

// Authority returns the host, with its port unless that is the scheme's own. It names flows ([FlowKeyHost]), and is the Host of a request.
func (o Origin) Authority() string {
	if o.Port != ownPort(o.Scheme) {
		return o.Address()
	}
	if strings.Contains(o.Host, ":") {
		return "[" + o.Host + "]"
	}
	return o.Host
}

func (o Origin) String() string { return o.Scheme + "://" + o.Authority() }

// Addr returns the address if the host is one, and ok reports whether it is.
func (o Origin) Addr() (addr netip.Addr, ok bool) {
	if !strings.Contains(o.Host, ":") && !endsInNumber(o.Host) {
		return netip.Addr{}, false // a name, which needs no error
	}
	addr, err := netip.ParseAddr(o.Host)
	return addr, err == nil
}

func canonicalHost(u *url.URL) (string, error) {
	host := u.Hostname()
	if host == "" {
		return "", errNoHost
	}
	if strings.HasPrefix(u.Host, "[") {
		addr, err := netip.ParseAddr(host)
		if err != nil || !addr.Is6() || addr.Zone() != "" {
			return "", errBadHost
		}
		return addr.Unmap().String(), nil
	}
	name, err := canonicalName(host)
	if err != nil {
		return "", err
	}
	if name == host {
		return name, nil
	}
	// a name whose canonical form maps to another name would have two flows
	if again, err := canonicalName(name); err != nil || again != name {
		return "", errBadHost
	}
	return name, nil
}

// canonicalName returns the canonical form of a name, or of an IPv4 address.
func canonicalName(host string) (string, error) {
	name := host
	if !isPlainName(host) {
		var err error
		if name, err = hostProfile.ToASCII(host); err != nil {
			return "", errBadHost
		}
	}
	name = strings.TrimSuffix(name, ".")
	isNumber := endsInNumber(name)
	if isNumber {
		if addr, err := netip.ParseAddr(name); err == nil && addr.Is4() {
			return addr.String(), nil
		}
	}
	if len(name) > maxHostBytes {
		return "", errBadHost
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > maxLabelBytes || strings.ContainsFunc(label, isForeign) {
			return "", errBadHost
		}
	}
	if isNumber {
		return "", errNumber
	}
	return name, nil
}

// isPlainName reports whether hostProfile has nothing to map or check in a host.
func isPlainName(host string) bool {
	return !strings.Contains(host, "xn--") && !strings.ContainsFunc(host, func(r rune) bool { return r != '.' && isForeign(r) })
}

// isForeign reports whether a character cannot occur in a canonical label.
func isForeign(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_'
}

// endsInNumber reports whether the top-level domain is a number. By the rule of the WHATWG URL standard such a host is an IPv4 address or invalid.
// Some resolvers read 127.1, 0x7f000001 and 2130706433 as IPv4 addresses.
func endsInNumber(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	return strings.HasPrefix(last, "0x") || strings.Trim(last, "0123456789") == ""
}
