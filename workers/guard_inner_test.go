package workers

import (
	"net/netip"
	"strings"
	"testing"
)

// addresses are judged with allow_networks as named; "" is none.
var addresses = []struct {
	addr, allowed string
	passes        bool
}{
	// NAT64: the IPv4 address inside decides.
	{"64:ff9b::8.8.8.8", "", true},
	{"64:ff9b::1.1.1.1", "", true},
	{"64:ff9b::168.63.129.17", "", true},
	{"64:ff9b::0.0.0.0", "", false},
	{"64:ff9b::127.0.0.1", "", false},
	{"64:ff9b::10.0.0.1", "", false},
	{"64:ff9b::172.16.0.1", "", false},
	{"64:ff9b::192.168.1.1", "", false},
	{"64:ff9b::100.64.0.1", "", false},
	{"64:ff9b::169.254.169.254", "", false},
	{"64:ff9b::168.63.129.16", "", false},
	{"64:ff9b::192.0.0.192", "", false},
	{"64:ff9b::192.0.2.1", "", false},
	{"64:ff9b::198.18.0.1", "", false},
	{"64:ff9b::224.0.0.1", "", false},
	{"64:ff9b::255.255.255.255", "", false},
	{"64:ff9b::808:808%eth0", "", false},
	{"64:ff9b:0:1::808:808", "", false}, // behind the prefix

	// Allowing the prefix, or all of IPv6, opens no IPv4 address inside.
	{"64:ff9b::8.8.8.8", "64:ff9b::/96", true},
	{"64:ff9b::127.0.0.1", "64:ff9b::/96", false},
	{"64:ff9b::10.0.0.1", "64:ff9b::/96", false},
	{"64:ff9b::169.254.169.254", "64:ff9b::/96", false},
	{"64:ff9b::168.63.129.16", "64:ff9b::/96", false},
	{"64:ff9b::127.0.0.1", "::/0", false},
	{"64:ff9b::127.0.0.1", "64:ff9b::7f00:1/128", false},
	{"64:ff9b::10.0.0.1", "10.0.0.0/8", true},
	{"64:ff9b::10.0.0.1", "10.0.0.0/8 64:ff9b::/96", true},
	{"64:ff9b::11.0.0.1", "10.0.0.0/8", true},
	{"64:ff9b::192.168.0.1", "10.0.0.0/8 64:ff9b::/96", false},
	{"64:ff9b::168.63.129.16", "168.63.129.16/32", true},

	// NAT64 of a network's own: shut, unless the prefix of the gateway is allowed.
	{"64:ff9b:1::8.8.8.8", "", false},
	{"64:ff9b:1::8.8.8.8", "64:ff9b:1::/96", true},
	{"64:ff9b:1::127.0.0.1", "64:ff9b:1::/96", false},
	{"64:ff9b:1::8.8.8.8", "64:ff9b:1::808:808/128", true},
	{"64:ff9b:1::10.0.0.1", "64:ff9b:1::a00:1/128", false},
	{"64:ff9b:1::10.0.0.1", "64:ff9b:1::/96 10.0.0.0/8", true},
	{"64:ff9b:1::8.8.8.8", "64:ff9b:1::/48", false}, // not where a gateway with /48 has it
	{"64:ff9b:1:808:8:800::", "64:ff9b:1::/48", true},
	{"64:ff9b:1:7f00:0:100::", "64:ff9b:1::/48", false},
	{"64:ff9b:1:808:8:800:7f00:1", "64:ff9b:1::/48", false},   // both places
	{"64:ff9b:1:808:108:800::", "64:ff9b:1::/48", false},      // the reserved byte
	{"64:ff9b:1:208:8:808::", "64:ff9b:1:200::/56", true},     // 8.8.8.8 behind 56 bits
	{"64:ff9b:1:27f:0:1::", "64:ff9b:1:200::/56", false},      // 127.0.0.1 behind 56 bits
	{"64:ff9b:1:2:8:808:800:0", "64:ff9b:1:2::/64", true},     // 8.8.8.8 behind 64 bits
	{"64:ff9b:1:2:a9:fea9:fe00:0", "64:ff9b:1:2::/64", false}, // 169.254.169.254 behind 64 bits
	{"64:ff9b:1::8.8.8.8", "64:ff9b:1::/80", false},           // no gateway has such a prefix

	// Other addresses with one inside: shut, and opened no further than their IPv4 address is.
	{"::ffff:8.8.8.8", "", true},
	{"::ffff:127.0.0.1", "", false},
	{"::ffff:127.0.0.1", "::/0", false},
	{"::ffff:10.0.0.1", "10.0.0.0/8", true},
	{"::8.8.8.8", "", false},
	{"::127.0.0.1", "::/96", false},
	{"::1", "", false},
	{"::1", "::1/128", true},
	{"::", "", false},
	{"::ffff:0:8.8.8.8", "", false},
	{"::ffff:0:8.8.8.8", "::ffff:0:0:0/96", true},
	{"::ffff:0:127.0.0.1", "::ffff:0:0:0/96", false},
	{"2002:808:808::1", "", false},
	{"2002:808:808::1", "2002::/16", true},
	{"2002:7f00:1::1", "2002::/16", false},
	{"2002:a9fe:a9fe::", "::/0", false},
	{"2001:0:808:808::f7f7:f7f7", "", false},
	{"2001:0:808:808::f7f7:f7f7", "2001::/32", true},  // 8.8.8.8, inverted
	{"2001:0:808:808::80ff:fffe", "2001::/32", false}, // 127.0.0.1, inverted
	{"2001:0:7f00:1::f7f7:f7f7", "2001::/32", false},

	// Addresses with none inside.
	{"8.8.8.8", "", true},
	{"10.0.0.1", "", false},
	{"10.0.0.1", "::/0", false},
	{"2606:4700:4700::1111", "", true},
	{"fd00::1", "", false},
	{"fd00::1", "fd00::/8", true},
	{"fe80::1%lo", "fe80::/10", false},
}

func TestGuardOfInnerAddresses(t *testing.T) {
	t.Parallel()
	for _, row := range addresses {
		var allowed []netip.Prefix
		for text := range strings.FieldsSeq(row.allowed) {
			allowed = append(allowed, netip.MustParsePrefix(text))
		}
		addr := netip.MustParseAddr(row.addr)
		err := Guard(allowed)("tcp6", netip.AddrPortFrom(addr, 80).String(), nil)
		if (err == nil) != row.passes || Blocks(addr, allowed) == row.passes {
			t.Errorf("%s with %q: %v, want it to pass: %t", row.addr, row.allowed, err, row.passes)
		}
	}
}

// An allowed network of IPv6 opens no address that contains an IPv4 address which is shut, wherever that stands.
func FuzzGuardOfInnerAddresses(f *testing.F) {
	for _, row := range addresses {
		addr := netip.MustParseAddr(row.addr).As16()
		f.Add(addr[:], 96)
		f.Add(addr[:], 48)
	}
	f.Fuzz(func(t *testing.T, b []byte, bits int) {
		addr, ok := netip.AddrFromSlice(b)
		if !ok || !addr.Is6() {
			return
		}
		network, err := addr.Prefix(bits)
		if err != nil {
			return
		}
		bytes := addr.As16()
		inner := netip.AddrFrom4([4]byte(bytes[12:]))
		opened := !Blocks(addr, []netip.Prefix{network})
		if opened && (nat64.Contains(addr) || addr.Is4In6() || translated.Contains(addr)) && Blocks(inner, nil) {
			t.Errorf("%s is open by %s, and contains %s", addr, network, inner)
		}
		if Blocks(addr, nil) != Blocks(addr, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}) && !netip.MustParsePrefix("10.0.0.0/8").Contains(inner) {
			t.Errorf("%s is opened by 10.0.0.0/8", addr)
		}
		if nat64.Contains(addr) && Blocks(addr, nil) != Blocks(inner, nil) {
			t.Errorf("%s is judged otherwise than %s", addr, inner)
		}
	})
}
