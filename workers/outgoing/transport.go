package outgoing

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync/atomic"

	"github.com/tundish-io/tundish/shaper"
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

// dialer makes the connections of a transport: directly or through the egress proxy, plain or over TLS.
type dialer struct {
	net     net.Dialer // with the guard
	allowed []netip.Prefix
	proxy   *url.URL    // nil for none
	files   TLS         // read for each connection
	home    Target      // only its origin is shown the client certificate
	tls     *tls.Config // the transport writes the protocols of HTTP into it
}

// proxyOf has the transport speak plain HTTP to the proxy. For TLS, dialTLS asks the proxy for a tunnel: the
// transport would do that too, but with one configuration of TLS for all connections.
func (d *dialer) proxyOf(r *http.Request) (*url.URL, error) {
	if r.URL.Scheme == "https" {
		return nil, nil
	}
	return d.proxy, nil
}

// dial connects to an address: that of the receiver, or of the proxy.
func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w := ctx.Value(wireKey{}).(*wire)
	if d.proxy != nil {
		if addr, ok := w.to.Addr(); ok && workers.Blocks(addr, d.allowed) {
			return nil, fmt.Errorf("%w: %s (allow_networks can let it through)", workers.ErrBlockedAddress, addr)
		}
	}
	conn, err := d.net.DialContext(ctx, network, address)
	if err != nil {
		if d.proxy != nil && errors.Is(err, workers.ErrBlockedAddress) {
			return nil, errors.New("the egress proxy is not called: " + err.Error()) // a fault of the settings, not of the job
		}
		return nil, err
	}
	w.Conn = conn
	return w, nil
}

// dialTLS connects to the address of a receiver over TLS. The transport does the handshake.
func (d *dialer) dialTLS(ctx context.Context, network, address string) (net.Conn, error) {
	to := ctx.Value(wireKey{}).(*wire).to
	config := d.tls.Clone()
	config.ServerName = to.Host
	if err := d.files.apply(config, d.home.Is(to)); err != nil {
		return nil, err
	}
	connect := d.dial
	if d.proxy != nil {
		connect = d.tunnel
	}
	conn, err := connect(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return tls.Client(conn, config), nil
}

// wire is a connection that counts the bytes written to it, TLS included. A count of 0 proves
// that nothing was sent.
type wire struct {
	net.Conn
	to      shaper.Origin // the receiver, whatever the connection leads through
	written atomic.Int64
}

func (w *wire) Write(p []byte) (int, error) {
	n, err := w.Conn.Write(p)
	w.written.Add(int64(n))
	return n, err
}

type wireKey struct{}

// withWire makes the transport put the connection that it dials into w.
func withWire(ctx context.Context, w *wire) context.Context {
	return context.WithValue(ctx, wireKey{}, w)
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
