package workers

import (
	"errors"
	"net/netip"
	"testing"
)

func TestGuard(t *testing.T) {
	t.Parallel()
	guard := Guard(nil)
	for _, address := range []string{
		"1.1.1.1:443", "8.8.8.8:8443", "93.184.216.34:1", "168.63.129.17:80",
		"[2606:4700:4700::1111]:443", "[2001:4860:4860::8888]:8080",
	} {
		if err := guard("tcp4", address, nil); err != nil {
			t.Errorf("%s is public, but: %v", address, err)
		}
	}
	for _, address := range []string{"", "1.1.1.1", "localhost:80", "10.1:80"} {
		if err := guard("tcp4", address, nil); !errors.Is(err, ErrBlockedAddress) {
			t.Errorf("%q is no address, but: %v", address, err)
		}
	}
	if err := guard("unix", "/var/run/docker.sock", nil); !errors.Is(err, ErrBlockedAddress) {
		t.Errorf("a unix socket is let through: %v", err)
	}
}

func TestGuardAllows(t *testing.T) {
	t.Parallel()
	guard := Guard([]netip.Prefix{
		netip.MustParsePrefix("10.1.0.0/16"),
		netip.MustParsePrefix("fd00:1::/32"),
		netip.MustParsePrefix("168.63.129.16/32"),
	})
	for address, allowed := range map[string]bool{
		"10.1.2.3:80": true, "10.2.2.3:80": false, "127.0.0.1:80": false, "8.8.8.8:80": true,
		"[fd00:1::5]:80": true, "[fd00:2::5]:80": false, "[::ffff:10.2.0.1]:80": false,
		"168.63.129.16:80": true,
	} {
		if err := guard("tcp6", address, nil); (err == nil) != allowed {
			t.Errorf("%s: %v, want allowed: %t", address, err, allowed)
		}
	}
}
