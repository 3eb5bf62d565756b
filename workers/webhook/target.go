package webhook

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/tundish-io/tundish/shaper"
)

// target is a checked URL and the origin that serves it.
type target struct {
	url *url.URL
	origin
}

// origin names the other end of a connection.
type origin struct {
	scheme  string // http or https
	address string // host:port, the host in ASCII
}

// is reports whether both are one origin.
func (o origin) is(other origin) bool {
	return o.scheme == other.scheme && strings.EqualFold(o.address, other.address)
}

// targetOf returns where a job goes that names jobURL, or ""; configured is where those
// of its flow go that name none, or "". The error is a [*shaper.FieldError].
func (c Config) targetOf(jobURL, configured string) (target, error) {
	switch {
	case jobURL == "" && configured == "":
		return target{}, &shaper.FieldError{Field: "url", Reason: "is missing, and the bucket has none"}
	case jobURL == "":
		jobURL = configured
	case !c.JobURL:
		return target{}, ErrURLNotAllowed
	}
	t, err := parseURL(jobURL)
	if err != nil {
		return target{}, &shaper.FieldError{Field: "url", Reason: err.Error()}
	}
	return t, nil
}

// parseURL takes an absolute http or https URL, and nothing that two programs
// might read differently. Its errors do not repeat the URL: it may hold secrets.
func parseURL(s string) (target, error) {
	if len(s) > MaxURLBytes {
		return target{}, fmt.Errorf("has %d bytes: want at most %d", len(s), MaxURLBytes)
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return target{}, errors.New("holds a space or a control character: percent-encode it")
	}
	u, err := url.Parse(s)
	if err != nil {
		return target{}, errors.New("is not a URL")
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return target{}, errors.New("want an absolute URL that begins with http:// or https://")
	case u.User != nil:
		return target{}, errors.New("holds user information: send an Authorization header instead")
	case strings.Contains(s, "#"):
		return target{}, errors.New("holds a fragment, which is never sent")
	case strings.ContainsFunc(u.RawQuery, func(r rune) bool { return r > 0x7f }):
		return target{}, errors.New("has characters beyond ASCII in its query: percent-encode them")
	}
	address, err := addressOf(u)
	if err != nil {
		return target{}, err
	}
	return target{url: u, origin: origin{scheme: u.Scheme, address: address}}, nil
}

func addressOf(u *url.URL) (string, error) {
	host, err := httpguts.PunycodeHostPort(u.Hostname())
	if err != nil || host == "" || !httpguts.ValidHostHeader(host) || strings.Contains(host, "%") {
		return "", errors.New("has no host, or one that cannot be")
	}
	if _, err := netip.ParseAddr(host); err != nil && endsInNumber(host) {
		return "", errors.New("has a host that looks like an IP address and is none: write all four numbers, in decimal")
	}
	port := u.Port()
	switch n, err := strconv.ParseUint(port, 10, 16); {
	case port == "" && u.Scheme == "http":
		port = "80"
	case port == "":
		port = "443"
	case err != nil || n == 0:
		return "", errors.New("has a port that cannot be: want 1 to 65535")
	}
	return net.JoinHostPort(host, port), nil
}

// endsInNumber tells apart what some resolvers take for an IPv4 address (127.1,
// 0x7f000001, 2130706433) by the rule of the WHATWG URL standard: no top-level
// domain is a number.
func endsInNumber(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	last := host[strings.LastIndexByte(host, '.')+1:]
	return strings.HasPrefix(last, "0x") || last != "" && strings.Trim(last, "0123456789") == ""
}
