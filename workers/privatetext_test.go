package workers

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/internal/must"
)

// Who enqueues a job learns from its error neither the addresses of names inside this network, nor the resolver's, nor this host's. The log has them.
func TestErrorsKeepAddressesPrivate(t *testing.T) {
	refused := &net.OpError{
		Op: "read", Net: "tcp", Source: &net.TCPAddr{IP: net.ParseIP("10.0.0.7"), Port: 51234}, Addr: &net.TCPAddr{IP: net.ParseIP("fd00::5"), Port: 443},
		Err: os.NewSyscallError("read", syscall.ECONNRESET),
	}
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"a name with an inner address": {
			check(netip.MustParseAddr("10.0.0.5"), nil), "workers: the address is not on the public internet: (address) (allow_networks can let it through)",
		},
		"NAT64": {
			check(netip.MustParseAddr("64:ff9b::a00:5"), nil),
			"workers: the address is not on the public internet: (address) contains (address) (allow_networks can let that IPv4 address through; a network of IPv6 does not)",
		},
		"the resolver": {
			&net.DNSError{Err: "no such host", Name: "db.corp", Server: "10.0.0.2:53", IsNotFound: true}, "lookup db.corp on (address): no such host",
		},
		"a connection that ends": {refused, "read tcp (address)->(address): read: connection reset by peer"},
		"an egress proxy": {
			&url.Error{Op: "Post", URL: "https://example.com/a", Err: fmt.Errorf("proxyconnect tcp: dial tcp 172.16.0.9:3128: %w", syscall.ECONNREFUSED)},
			"Post https://example.com: proxyconnect tcp: dial tcp (address): connection refused",
		},
		"an address of the URL itself": {
			&url.Error{Op: "Post", URL: "https://192.0.2.7:8443/a", Err: errors.New("dial tcp 192.0.2.7:8443: connect: connection refused")},
			"Post https://192.0.2.7:8443: dial tcp 192.0.2.7:8443: connect: connection refused",
		},
		"a zone":       {errors.New("dial tcp [fe80::1%eth0]:80: timeout"), "dial tcp (address): timeout"},
		"no addresses": {errors.New("std::bad at 10:20:30, version 1.2: stream error: stream ID 5; deadbeef"), "std::bad at 10:20:30, version 1.2: stream error: stream ID 5; deadbeef"},
	} {
		t.Run(name, func(t *testing.T) {
			outcome := ClassifyError(test.err)
			must.Equal(t, outcome.Detail, test.want, "Detail")
			if masked := strings.Contains(outcome.Detail, "(address)"); masked != (outcome.Private != "") || masked && outcome.Private != errorDetail(test.err) {
				t.Errorf("the log has %q", outcome.Private)
			}
		})
	}
}

// No address of any form is left, wherever it stands in the text.
func TestNoAddressIsLeft(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bytes := rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "IPv4")
		if rapid.Bool().Draw(t, "IPv6") {
			bytes = rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "IPv6 bytes")
		}
		addr, _ := netip.AddrFromSlice(bytes)
		text := addr.String()
		if rapid.Bool().Draw(t, "port") {
			text = netip.AddrPortFrom(addr, rapid.Uint16().Draw(t, "number")).String()
		}
		before := rapid.SampledFrom([]string{"", "dial tcp ", "->", "(", "=", "\"", "on ", "a,"}).Draw(t, "before")
		after := rapid.SampledFrom([]string{"", ": refused", "->", ")", ".", ",", "\"", " x"}).Draw(t, "after")
		must.Be(t, withoutAddresses(before+text+after, errors.New("")), before+"(address)"+after, "%q becomes", before+text+after)
	})
}
