package outgoing

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/tundish-io/tundish/workers"
)

// maxAnswerHeader bounds the headers of a response.
const maxAnswerHeader = 64 << 10

// newTransport returns what makes the transport of the connections, at the first use: with its guard it takes 2 KB, and most of many buckets
// may be idle. An error is of the egress proxy or of Home.
func newTransport(config Config) (func() *http.Transport, error) {
	var home Target
	var proxy *url.URL
	var err error
	if config.Home != "" {
		if home, err = ParseURL(config.Home); err != nil {
			return nil, err
		}
	}
	if config.EgressProxy != "" {
		if proxy, _, err = parseProxy(config.EgressProxy); err != nil {
			return nil, err
		}
	}
	return sync.OnceValue(func() *http.Transport {
		return transportOf(&dialer{
			net:   workers.Dialer{Allowed: config.AllowNetworks, Resolver: config.Resolver},
			proxy: proxy,
			files: config.TLS,
			home:  home,
			tls:   &tls.Config{MinVersion: tls.VersionTLS12},
		})
	}), nil
}

// transportOf returns the transport that makes its connections by d. It reads no proxy from the environment: with one the guard would see the proxy's
// address. Nothing is decompressed: a small response could become an endless one. Times are bounded by the context.
func transportOf(d *dialer) *http.Transport {
	return &http.Transport{
		DialContext:            d.dial,
		DialTLSContext:         d.dialTLS,
		Proxy:                  d.proxyOf,
		TLSClientConfig:        d.tls,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxAnswerHeader,
		HTTP2:                  healthChecks(),
	}
}

// healthChecks makes HTTP/2 connections send a PING when they are silent. A slow receiver answers it, and one that is gone does not.
func healthChecks() *http.HTTP2Config {
	return &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout}
}

// guardedDialTimeout bounds how long a [GuardedTransport] takes to connect. It is shorter than the requests' timeout, so errors distinguish a resolver
// that does not answer from a server that does not.
const guardedDialTimeout = 5 * time.Second

// GuardedTransport returns a transport that connects only to addresses that [workers.Guard] allows, without a proxy: for requests that are no job's,
// such as those for tokens.
func GuardedTransport(allowed []netip.Prefix) *http.Transport {
	dialer := workers.Dialer{Allowed: allowed}
	return &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, guardedDialTimeout)
			defer cancel()
			return dialer.DialContext(ctx, network, address)
		},
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxAnswerHeader,
		IdleConnTimeout:        idleTimeout,
		HTTP2:                  healthChecks(),
	}
}
