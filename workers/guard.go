package workers

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"

	"code.dny.dev/ssrf"
)

// ErrBlockedAddress is the error of a connection that [Guard] refused.
var ErrBlockedAddress = errors.New("workers: the address is not on the public internet")

// azureWireServer is public by its number, but inside Azure it is the host's
// metadata and control endpoint.
var azureWireServer = netip.MustParsePrefix("168.63.129.16/32")

// publicOnly has the rules of the IANA registries of special-purpose addresses.
var publicOnly = ssrf.New(ssrf.WithAnyPort(), ssrf.WithDeniedV4Prefixes(azureWireServer))

// Guard returns a [net.Dialer] Control function that lets connections through only to addresses of the public internet and of the allowed networks, on
// any port. It sees the address of the connection, after the name was resolved. So it also blocks a name that points to an inner address, and a name
// that changes between two look-ups. The IANA registries of special-purpose addresses define the rest: private, loopback, link-local, shared (CGNAT),
// documentation, multicast and reserved addresses.
//
// An IPv6 address that contains an IPv4 address also has to pass the rules for that IPv4 address: no allowed IPv6 network opens an IPv4 address that
// these rules shut. Addresses of NAT64 (64:ff9b::/96) pass by these rules alone. Other addresses of this kind, such as 6to4 and Teredo, need an allowed
// network of their own in addition.
func Guard(allowed []netip.Prefix) func(network, address string, conn syscall.RawConn) error {
	return func(network, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil || network != "tcp4" && network != "tcp6" {
			return fmt.Errorf("%w: %s %s", ErrBlockedAddress, network, address)
		}
		return check(at.Addr(), allowed)
	}
}

// Blocks reports whether [Guard] would refuse a connection to addr with these allowed networks.
// So a URL with an address in it can be refused before any connection.
func Blocks(addr netip.Addr, allowed []netip.Prefix) bool { return check(addr, allowed) != nil }

// check returns an [ErrBlockedAddress] for an address that is shut.
func check(addr netip.Addr, allowed []netip.Prefix) error {
	addr = addr.Unmap()
	if !isAllowed(addr, allowed) && !isPublic(addr) && !nat64.Contains(addr) {
		return fmt.Errorf("%w: %s (allow_networks can let it through)", ErrBlockedAddress, addr)
	}
	for _, inner := range innerOf(addr, allowed) {
		if !isAllowed(inner, allowed) && !isPublic(inner) {
			return fmt.Errorf("%w: %s contains %s (allow_networks can let that IPv4 address through; a network of IPv6 does not)", ErrBlockedAddress, addr, inner)
		}
	}
	return nil
}

func isAllowed(addr netip.Addr, allowed []netip.Prefix) bool {
	return slices.ContainsFunc(allowed, func(network netip.Prefix) bool { return network.Contains(addr) })
}

func isPublic(addr netip.Addr) bool {
	network := "tcp6"
	if addr.Is4() {
		network = "tcp4"
	}
	return publicOnly.Safe(network, netip.AddrPortFrom(addr, 80).String(), nil) == nil //nolint:mnd // any port
}

// Prefixes whose addresses contain an IPv4 address.
var (
	nat64      = netip.MustParsePrefix("64:ff9b::/96")    // NAT64, RFC 6052
	localNAT64 = netip.MustParsePrefix("64:ff9b:1::/48")  // NAT64 of a network's own, RFC 8215
	sixToFour  = netip.MustParsePrefix("2002::/16")       // RFC 3056
	teredo     = netip.MustParsePrefix("2001::/32")       // RFC 4380
	translated = netip.MustParsePrefix("::ffff:0:0:0/96") // RFC 7915
	compatible = netip.MustParsePrefix("::/96")           // RFC 4291; :: and ::1 are not such addresses
	notInner   = netip.MustParsePrefix("::/127")
)

// innerOf returns the IPv4 addresses that an IPv6 address contains.
func innerOf(addr netip.Addr, allowed []netip.Prefix) []netip.Addr {
	b := addr.As16()
	v4 := func(at int) netip.Addr { return netip.AddrFrom4([4]byte(b[at:])) }
	switch {
	case addr.Is4(), notInner.Contains(addr):
		return nil
	case nat64.Contains(addr), translated.Contains(addr), compatible.Contains(addr):
		return []netip.Addr{v4(12)} //nolint:mnd // the last 32 bits
	case localNAT64.Contains(addr):
		return []netip.Addr{innerOfLocal(addr, allowed)}
	case sixToFour.Contains(addr):
		return []netip.Addr{v4(2)} //nolint:mnd // behind 16 bits
	case teredo.Contains(addr):
		client := v4(12).As4() //nolint:mnd // the last 32 bits, inverted
		for i := range client {
			client[i] = ^client[i]
		}
		return []netip.Addr{v4(4), netip.AddrFrom4(client)} //nolint:mnd // the server is behind 32 bits
	}
	return nil
}

// innerOfLocal returns the IPv4 address inside an address of [localNAT64]. Its place depends on the length of the gateway's prefix
// (RFC 6052, 2.2), which is the length of the allowed network that contains the address. Bits that have to be 0 and are not
// make it 0.0.0.0, which is shut.
func innerOfLocal(addr netip.Addr, allowed []netip.Prefix) netip.Addr {
	const whole, reserved = 96, 8 // bits; the byte that stays 0
	bits := whole
	for _, network := range allowed {
		if network.Contains(addr) {
			bits = min(bits, network.Bits())
		}
	}
	b := addr.As16()
	if bits == whole {
		return netip.AddrFrom4([4]byte(b[whole/8:]))
	}
	var inner [4]byte
	bits = max(bits, localNAT64.Bits())
	if bits != 48 && bits != 56 && bits != 64 { //nolint:mnd // RFC 6052
		return netip.IPv4Unspecified()
	}
	at := bits / 8 //nolint:mnd // bits of a byte
	for i := range inner {
		if at == reserved {
			at++
		}
		inner[i] = b[at]
		at++
	}
	for _, rest := range append(b[at:], b[reserved]) {
		if rest != 0 {
			return netip.IPv4Unspecified()
		}
	}
	return netip.AddrFrom4(inner)
}
