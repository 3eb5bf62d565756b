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

// Guard returns a [net.Dialer] Control function that lets connections through only to addresses
// of the public internet and of the allowed networks, on any port. It sees the address of the
// connection, after the name was resolved. So a name that points to an inner address does not get
// by, and neither does a name that changes between two look-ups. The IANA registries of
// special-purpose addresses define the rest: private, loopback, link-local, shared (CGNAT),
// documentation, multicast and reserved addresses, and those that wrap an IPv4 address (NAT64,
// 6to4, Teredo).
func Guard(allowed []netip.Prefix) func(network, address string, conn syscall.RawConn) error {
	var v4, v6 []netip.Prefix
	for _, network := range allowed {
		if network.Addr().Is4() {
			v4 = append(v4, network)
		} else {
			v6 = append(v6, network)
		}
	}
	guardian := ssrf.New(
		ssrf.WithAnyPort(),
		ssrf.WithAllowedV4Prefixes(v4...),
		ssrf.WithAllowedV6Prefixes(v6...),
		ssrf.WithDeniedV4Prefixes(azureWireServer),
	)
	return func(network, address string, conn syscall.RawConn) error {
		if err := guardian.Safe(network, address, conn); err != nil {
			return fmt.Errorf("%w: %s (allow_networks can let it through)", ErrBlockedAddress, address)
		}
		return nil
	}
}

var publicOnly = Guard(nil)

// Blocks reports whether [Guard] would refuse a connection to addr with these allowed networks.
// So a URL with an address in it can be refused before any connection.
func Blocks(addr netip.Addr, allowed []netip.Prefix) bool {
	addr = addr.Unmap()
	if slices.ContainsFunc(allowed, func(network netip.Prefix) bool { return network.Contains(addr) }) {
		return false
	}
	network := "tcp6"
	if addr.Is4() {
		network = "tcp4"
	}
	return publicOnly(network, netip.AddrPortFrom(addr, 80).String(), nil) != nil
}
