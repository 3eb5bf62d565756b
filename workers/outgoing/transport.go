package outgoing

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"

	"github.com/tundish-io/tundish/workers"
)

// maxAnswerHeader bounds the headers of an answer.
const maxAnswerHeader = 64 << 10

// newTransport returns the transport that makes the connections. It reads no proxy from the environment: with one the guard would see
// the proxy's address. Nothing is decompressed: a small answer could become an endless one. Times are bounded by the
// context.
func newTransport(config Config) (*http.Transport, error) {
	d := &dialer{
		net:     net.Dialer{Control: workers.Guard(config.AllowNetworks)},
		allowed: config.AllowNetworks,
		files:   config.TLS,
		tls:     &tls.Config{MinVersion: tls.VersionTLS12},
	}
	var err error
	if config.Home != "" {
		if d.home, err = ParseURL(config.Home); err != nil {
			return nil, err
		}
	}
	if config.EgressProxy != "" {
		if d.proxy, _, err = parseProxy(config.EgressProxy); err != nil {
			return nil, err
		}
	}
	return &http.Transport{
		DialContext:            d.dial,
		DialTLSContext:         d.dialTLS,
		Proxy:                  d.proxyOf,
		TLSClientConfig:        d.tls,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxAnswerHeader,
	}, nil
}

// GuardedTransport returns a transport that connects only where [workers.Guard] lets it, without a proxy: for requests that are no
// job's, such as those for tokens.
func GuardedTransport(allowed []netip.Prefix) *http.Transport {
	return &http.Transport{
		DialContext:            (&net.Dialer{Control: workers.Guard(allowed)}).DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxAnswerHeader,
		IdleConnTimeout:        idleTimeout,
	}
}
