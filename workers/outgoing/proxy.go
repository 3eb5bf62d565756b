package outgoing

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"github.com/tundish-io/tundish/shaper"
)

// parseProxy takes http://user:password@host:port; user and password may be missing. Its errors repeat no part of it,
// because any part may be the password.
func parseProxy(text string) (*url.URL, shaper.Origin, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" || u.Opaque != "" || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return nil, shaper.Origin{}, errors.New("want http://host:port or http://user:password@host:port, percent-encoded where needed")
	}
	origin, err := shaper.OriginOf(u)
	if err != nil {
		return nil, shaper.Origin{}, err
	}
	return &url.URL{Scheme: u.Scheme, User: u.User, Host: origin.Address()}, origin, nil
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

// connect sends CONNECT (RFC 9110) and reads the answer. Bytes behind the answer are dropped with the reader: a server of
// TLS sends nothing before its client does.
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
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("the proxy answers %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	return nil
}
