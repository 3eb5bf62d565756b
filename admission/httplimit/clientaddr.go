package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/tundish-io/tundish/admission"
)

// The headers that proxies use for the address of their client.
const (
	XForwardedFor = "x-forwarded-for"
	Forwarded     = "forwarded" // RFC 7239
)

// DefaultIPv6Prefix is the length of the prefix that counts as one IPv6 address: a customer has a whole network, and could use each address
// once.
const DefaultIPv6Prefix = 64

// Proxies lists the proxies in front of a server, and so decides which address is the client
// of a request. The zero value means no proxies: the client is the peer of the connection.
//
// Every proxy adds the address of its own peer at the right end of the header. The addresses
// are therefore read from the right, and only as far as trusted proxies have written them. The
// client may have sent anything further left. Only the header named by Header is read, for
// the same reason: a proxy adds to one header and passes the other on as the client sent it.
type Proxies struct {
	Trusted []netip.Prefix // addresses of proxies whose header is believed
	Header  string         // XForwardedFor or Forwarded, in any case; "" means XForwardedFor

	// IPv6Prefix is the length of the prefix that counts as one IPv6 address,
	// 1 to 128; 0 means DefaultIPv6Prefix.
	IPv6Prefix int
}

// Validate reports every fault, joined, each with the key of the configuration.
func (p Proxies) Validate() error {
	var errs []error
	if p.Header != "" && !strings.EqualFold(p.Header, XForwardedFor) && !strings.EqualFold(p.Header, Forwarded) {
		errs = append(errs, fmt.Errorf("forwarded_header: %q: want %s or %s", p.Header, XForwardedFor, Forwarded))
	}
	if p.IPv6Prefix < 0 || p.IPv6Prefix > 128 {
		errs = append(errs, fmt.Errorf("ipv6_prefix: %d: want 1 to 128", p.IPv6Prefix))
	}
	for _, prefix := range p.Trusted {
		if !prefix.IsValid() {
			errs = append(errs, errors.New("trusted_proxies: an entry is no network: want 10.0.0.0/8 or ::1/128, for example"))
		}
	}
	return errors.Join(errs...)
}

// Peer returns the address of the other end of the connection, without port and zone, and as IPv4 if it is one. It is not valid if the connection has
// no address.
func Peer(r *http.Request) netip.Addr {
	addrPort, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return plain(addrPort.Addr())
}

// Trusts reports whether addr is one of a trusted proxy.
func (p Proxies) Trusts(addr netip.Addr) bool {
	return addr.IsValid() && slices.ContainsFunc(p.Trusted, func(prefix netip.Prefix) bool {
		if from := prefix.Addr(); from.Is4In6() && prefix.Bits() >= 96 {
			prefix = netip.PrefixFrom(from.Unmap(), prefix.Bits()-96)
		}
		return prefix.Contains(addr)
	})
}

// ClientAddr returns the address of the client. It is the peer or, while that is a trusted proxy, the address that the proxy names. A trusted proxy
// may name no address, hide its client ("unknown", "_secret"), or write a text that is no address: then ClientAddr returns the address of that proxy.
// It is not valid if the connection has no address, such as a Unix socket.
func (p Proxies) ClientAddr(r *http.Request) netip.Addr {
	client := Peer(r)
	if !p.Trusts(client) {
		return client
	}
	header, node := http.CanonicalHeaderKey(XForwardedFor), parseNode
	if strings.EqualFold(p.Header, Forwarded) {
		header, node = http.CanonicalHeaderKey(Forwarded), forwardedNode
	}
	for _, line := range slices.Backward(r.Header.Values(header)) {
		for line != "" {
			var element string
			line, element = cutLast(line)
			if element == "" {
				continue // lists may have empty elements
			}
			addr, ok := node(element)
			if !ok {
				return client
			}
			client = addr
			if !p.Trusts(client) {
				return client
			}
		}
	}
	return client
}

// Identity returns the sender of a request, by its addresses: the caller is the client's address, and the headers are all headers of the
// request.
func (p Proxies) Identity(r *http.Request) admission.Identity {
	id := admission.Identity{IP: p.Name(p.ClientAddr(r)), Headers: RequestHeaders(r.Header)}
	id.Caller = admission.AddrCaller(id.IP)
	return id
}

// Name returns the text under which limits count an address. For IPv4 it is the address, for IPv6 its prefix, such as "2001:db8:1:2::/64". It is
// "" if addr is not valid.
func (p Proxies) Name(addr netip.Addr) string {
	addr = plain(addr)
	bits := p.IPv6Prefix
	if bits == 0 {
		bits = DefaultIPv6Prefix
	}
	if !addr.Is6() || bits >= 128 {
		if !addr.IsValid() {
			return ""
		}
		return addr.String()
	}
	prefix, err := addr.Prefix(bits)
	if err != nil {
		return addr.String() // a prefix that Validate refuses
	}
	return prefix.String()
}

// RequestHeaders returns the headers for an [admission.Identity]. A header in several lines is one list (RFC 9110, 5.3) and counts as such: no line
// of it can hide another.
func RequestHeaders(h http.Header) map[string]string {
	headers := make(map[string]string, len(h))
	for name, values := range h {
		headers[name] = strings.Join(values, ", ")
	}
	return headers
}

func plain(addr netip.Addr) netip.Addr { return addr.Unmap().WithZone("") }

// cutLast cuts the last element off a list. A comma in a quoted string does not divide. It reads
// from the right, so that it finds the element that a proxy has appended, even behind an open quote.
func cutLast(line string) (rest, last string) {
	quoted := false
	for i := len(line) - 1; i >= 0; i-- {
		switch {
		case line[i] == '"' && (!quoted || !escaped(line[:i])):
			quoted = !quoted
		case line[i] == ',' && !quoted:
			return line[:i], strings.Trim(line[i+1:], " \t")
		}
	}
	return "", strings.Trim(line, " \t")
}

// escaped reports whether what follows before is escaped: it ends in an odd
// number of backslashes.
func escaped(before string) bool {
	return (len(before)-len(strings.TrimRight(before, `\`)))%2 == 1
}

// forwardedNode reads the address of an element of Forwarded, such as
// for="[2001:db8::1]:4711";proto=https.
func forwardedNode(element string) (addr netip.Addr, ok bool) {
	for element = strings.TrimLeft(element, "; \t"); element != ""; element = strings.TrimLeft(element, "; \t") {
		var name, value string
		name, value, element, ok = cutPair(element)
		if !ok {
			return netip.Addr{}, false
		}
		if !strings.EqualFold(name, "for") {
			continue
		}
		if addr.IsValid() { // given twice: which one is meant?
			return netip.Addr{}, false
		}
		if addr, ok = parseNode(value); !ok {
			return netip.Addr{}, false
		}
	}
	return addr, addr.IsValid()
}

// cutPair cuts the first name=value off an element; value has its quotes and
// escapes taken away.
func cutPair(element string) (name, value, rest string, ok bool) {
	name, rest, ok = strings.Cut(element, "=")
	if !ok {
		return "", "", "", false
	}
	name = strings.Trim(name, " \t")
	if !strings.HasPrefix(rest, `"`) {
		value, rest, _ = strings.Cut(rest, ";")
		return name, strings.TrimRight(value, " \t"), rest, !strings.Contains(value, `"`)
	}
	var text strings.Builder
	for i := 1; i < len(rest); i++ {
		switch rest[i] {
		case '\\':
			i++
			if i < len(rest) {
				text.WriteByte(rest[i])
			}
		case '"':
			rest = strings.TrimLeft(rest[i+1:], " \t")
			after, more := strings.CutPrefix(rest, ";")
			return name, text.String(), after, more || rest == ""
		default:
			text.WriteByte(rest[i])
		}
	}
	return "", "", "", false
}

// parseNode reads an address with or without a port: 192.0.2.1,
// 192.0.2.1:4711, 2001:db8::1, [2001:db8::1], [2001:db8::1]:4711. A port may be
// anything.
func parseNode(text string) (addr netip.Addr, ok bool) {
	host := text
	if inner, bracketed := strings.CutPrefix(text, "["); bracketed {
		after := ""
		host, after, ok = strings.Cut(inner, "]")
		if !ok || after != "" && after[0] != ':' || !strings.Contains(host, ":") {
			return netip.Addr{}, false
		}
	} else if strings.Count(text, ":") == 1 {
		host, _, _ = strings.Cut(text, ":")
	}
	addr, err := netip.ParseAddr(host)
	if err != nil || addr.IsUnspecified() {
		return netip.Addr{}, false
	}
	return plain(addr), true
}
