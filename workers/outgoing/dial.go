package outgoing

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"github.com/tundish-io/tundish/workers"
)

// dialer makes the connections of a transport: directly or through the egress proxy, plain or over TLS.
type dialer struct {
	net   workers.Dialer // with the guard
	proxy *url.URL       // nil for none
	files TLS            // read for each connection
	home  Target         // only its origin is shown the client certificate
	tls   *tls.Config    // the transport writes the protocols of HTTP into it
}

// proxyOf makes the transport speak plain HTTP to the proxy. For TLS, dialTLS requests a tunnel from the proxy: the transport would do that too, but
// with one TLS configuration for all connections.
func (d *dialer) proxyOf(r *http.Request) (*url.URL, error) {
	if r.URL.Scheme == "https" {
		return nil, nil
	}
	return d.proxy, nil
}

// dial connects to the address of the receiver or of the proxy.
func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w := ctx.Value(wireKey{}).(*wire)
	if d.proxy != nil {
		if addr, ok := w.to.Addr(); ok && workers.Blocks(addr, d.net.Allowed) {
			return nil, fmt.Errorf("%w: %s (allow_networks can let it through)", workers.ErrBlockedAddress, addr)
		}
	}
	conn, err := d.net.DialContext(ctx, network, address)
	switch {
	case err == nil:
	case d.proxy == nil || errors.Is(ctx.Err(), context.Canceled):
		return nil, err
	case errors.Is(err, workers.ErrBlockedAddress):
		return nil, workers.NoProxy(errors.New("the egress proxy is not called: " + err.Error())) // a fault of the settings, not of the job
	default:
		return nil, workers.NoProxy(err)
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
		return nil, workers.Local(err)
	}
	connect := d.dial
	if d.proxy != nil {
		connect = d.tunnel
	}
	conn, err := connect(ctx, network, address)
	if err != nil {
		return nil, err
	}
	w := ctx.Value(wireKey{}).(*wire)
	w.tls = tls.Client(conn, config)
	return w.tls, nil
}

// tunnel connects to the address of a receiver through the proxy. The receiver gets no byte of it.
func (d *dialer) tunnel(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.dial(ctx, network, d.proxy.Host)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() }) // ends a read or a write that hangs
	err = d.connect(conn, address)
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("ask the egress proxy for a tunnel: %w", err)
	}
	return conn, nil
}

// connect sends CONNECT (RFC 9110) and reads the response. Bytes after the response are dropped with the reader: a TLS server sends nothing before its
// client does.
func (d *dialer) connect(conn net.Conn, address string) error {
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address, Header: http.Header{"User-Agent": {UserAgent}}}
	if user := d.proxy.User; user != nil {
		password, _ := user.Password()
		req.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)))
	}
	if err := req.Write(conn); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(io.LimitReader(conn, maxAnswerHeader)), req) //nolint:bodyclose // it is the tunnel
	if err != nil {
		return err
	}
	if resp.StatusCode == http.StatusProxyAuthRequired {
		return workers.NoProxy(errors.New("the proxy answers 407 Proxy Authentication Required: its user or password is wrong"))
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("the proxy answers %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	return nil
}
