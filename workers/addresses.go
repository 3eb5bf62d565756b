package workers

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"
)

// Bounds of one connect to a name.
const (
	maxAddresses = 8                      // addresses tried: a hostile name could list thousands
	connectDelay = 250 * time.Millisecond // until the next address is tried as well (RFC 8305, 8)
)

// spreadDialer connects to one of the addresses of a name. Each connect begins with another address at random, so that connections spread over
// all of them. It does not use [net.Dialer] for the name, which always begins with the first address of the resolver.
type spreadDialer struct {
	net.Dialer // with the guard, which judges the address of each connection
}

// DialContext connects to host:port.
func (d *spreadDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return d.Dialer.DialContext(ctx, network, address)
	}
	addrs, err := d.Resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	addrs = spread(addrs)
	if len(addrs) == 1 {
		return d.Dialer.DialContext(ctx, network, net.JoinHostPort(addrs[0].String(), port))
	}
	return d.race(ctx, network, port, addrs)
}

// spread returns at most maxAddresses of the addresses of a name in random order. The families alternate, beginning with the resolver's first choice
// (RFC 8305, 4).
func spread(addrs []netip.Addr) []netip.Addr {
	var first, other []netip.Addr
	for _, addr := range addrs {
		if addr = addr.Unmap(); addr.Is4() == addrs[0].Unmap().Is4() {
			first = append(first, addr)
		} else {
			other = append(other, addr)
		}
	}
	for _, family := range [][]netip.Addr{first, other} {
		rand.Shuffle(len(family), func(i, j int) { family[i], family[j] = family[j], family[i] }) //nolint:gosec // no secret
	}
	order := make([]netip.Addr, 0, len(addrs))
	for i := range max(len(first), len(other)) {
		if i < len(first) {
			order = append(order, first[i])
		}
		if i < len(other) {
			order = append(order, other[i])
		}
	}
	return order[:min(len(order), maxAddresses)]
}

// connected is the result of a connect to one address.
type connected struct {
	conn net.Conn
	err  error
}

// race connects to the addresses in order, and returns the first connection. The next address is tried as soon as one fails, and after
// connectDelay (RFC 8305, 5).
func (d *spreadDialer) race(ctx context.Context, network, port string, addrs []netip.Addr) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan connected, len(addrs)) // no connect waits for its reader
	started, ended := 0, 0
	start := func() {
		if started == len(addrs) {
			return
		}
		address := net.JoinHostPort(addrs[started].String(), port)
		started++
		go func() {
			conn, err := d.Dialer.DialContext(ctx, network, address)
			results <- connected{conn, err}
		}()
	}
	start()
	next := time.NewTicker(connectDelay)
	defer next.Stop()
	var failed error
	for ended < len(addrs) {
		select {
		case <-next.C:
			start()
		case r := <-results:
			ended++
			if r.err == nil {
				go closeOthers(results, started-ended)
				return r.conn, nil
			}
			failed = worse(failed, r.err)
			if ctx.Err() != nil && ended == started {
				return nil, failed
			}
			start()
			next.Reset(connectDelay)
		}
	}
	return nil, failed
}

// closeOthers closes the connections of a race that was won.
func closeOthers(results <-chan connected, n int) {
	for range n {
		if r := <-results; r.conn != nil {
			r.conn.Close()
		}
	}
}

// worse returns the error that a failed race reports: the first one, and [ErrBlockedAddress] only if every address is blocked. That
// error is final for a job, and another address may work later.
func worse(failed, err error) error {
	if failed == nil || errors.Is(failed, ErrBlockedAddress) && !errors.Is(err, ErrBlockedAddress) {
		return err
	}
	return failed
}
