package workers

import (
	"errors"
	"net/netip"
	"net/url"
	"regexp"
	"strings"

	"github.com/tundish-io/tundish/shaper"
)

// maybeAddress matches what may be an IP address, with or without a port, after what does not belong to a word.
var maybeAddress = regexp.MustCompile(`(^|[^0-9A-Za-z_.:\[])(\[[0-9A-Za-z:.%]+\](?::[0-9]+)?|[0-9A-Fa-f]*[.:][0-9A-Fa-f.:]*(?:%[0-9A-Za-z]+)?)`)

// withoutAddresses returns the text of an error without IP addresses. The client that enqueued a job can read why it failed. It must not learn from the
// error which addresses names have inside this network, where the resolver is, or which address this host has. An address in the request's URL stays:
// the client wrote it.
func withoutAddresses(text string, err error) string {
	known := ""
	if e, ok := errors.AsType[*url.Error](err); ok {
		if u, err := url.Parse(e.URL); err == nil {
			known = u.Hostname()
		}
	}
	return maybeAddress.ReplaceAllStringFunc(text, func(found string) string {
		parts := maybeAddress.FindStringSubmatch(found)
		before, address := parts[1], parts[2]
		trimmed := strings.TrimRight(address, ":.")
		for _, one := range []string{address, trimmed} {
			if addr, ok := parseAddress(one); ok && addr.String() != known {
				return before + shaper.HiddenAddress + address[len(one):]
			}
		}
		return found
	})
}

// parseAddress reads an address with or without a port and brackets.
func parseAddress(text string) (netip.Addr, bool) {
	if at, err := netip.ParseAddrPort(text); err == nil {
		return at.Addr(), true
	}
	addr, err := netip.ParseAddr(strings.Trim(text, "[]"))
	return addr, err == nil
}
