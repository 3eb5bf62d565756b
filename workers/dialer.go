package workers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http/httptrace"
	"net/netip"
	"sync"
)

// errResolved marks an [ErrBlockedAddress] of a name: its address may change.
var errResolved = errors.New("the name resolved to it")

// Dialer connects to the addresses that [Guard] allows, and spreads connections over the addresses of a name. It returns the errors of [net.Dialer],
// except:
//   - A [LocalError] says that this host could not connect to any address of the receiver.
//   - An error that matches [ErrBlockedAddress] says that the guard refused every address that was tried.
type Dialer struct {
	Allowed  []netip.Prefix // beyond the public internet
	Resolver *net.Resolver  // nil: the process's

	host *host // nil: the process's
}

// DialContext connects to an address.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	h := d.host
	if h == nil {
		h = &thisHost
	}
	name, _, _ := net.SplitHostPort(address)
	attempt := dialAttempt{name: name}
	plain := spreadDialer{net.Dialer{Control: Guard(d.Allowed), Resolver: d.Resolver}}
	conn, err := plain.DialContext(httptrace.WithClientTrace(ctx, attempt.trace()), network, address)
	attempt.mu.Lock()
	defer attempt.mu.Unlock()
	if attempt.resolved {
		h.lookups.worked(name)
	}
	if err == nil || attempt.reached {
		h.routes.worked(name)
	}
	if err == nil || errors.Is(ctx.Err(), context.Canceled) { // a cancelled dial proves nothing
		return conn, err
	}
	return nil, attempt.fault(h, err)
}

// dialAttempt is what net reports while it makes a connection: it may try several addresses, and returns the error of one.
type dialAttempt struct {
	name string

	mu       sync.Mutex
	resolved bool
	reached  bool // a packet had a route to some address
	errs     []failedConnect
}

type failedConnect struct {
	err    error
	reason string // of this host; "" if the fault is elsewhere
}

func (a *dialAttempt) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		DNSDone: func(info httptrace.DNSDoneInfo) {
			a.mu.Lock()
			defer a.mu.Unlock()
			lookup, isLookup := errors.AsType[*net.DNSError](info.Err)
			a.resolved = a.resolved || info.Err == nil || isLookup && lookup.IsNotFound
		},
		ConnectDone: func(_, address string, err error) {
			failed := failedConnect{err: err}
			isBlocked := errors.Is(err, ErrBlockedAddress)
			if err != nil && !isBlocked {
				failed.reason = connectReason(err, address)
			}
			a.mu.Lock()
			defer a.mu.Unlock()
			a.reached = a.reached || !isBlocked && failed.reason == ""
			if err != nil {
				a.errs = append(a.errs, failed)
			}
		},
	}
}

// fault returns the error of an attempt that made no connection. a.mu is held.
func (a *dialAttempt) fault(h *host, err error) error {
	if lookup, ok := errors.AsType[*net.DNSError](err); ok {
		return a.lookupFault(h, lookup, err)
	}
	var local *failedConnect
	for i, one := range a.errs {
		switch {
		case errors.Is(one.err, ErrBlockedAddress):
		case one.reason == "":
			return one.err // of an address to which packets have a route
		case local == nil:
			local = &a.errs[i]
		}
	}
	switch {
	case local != nil:
		return a.connectFault(h, local)
	case errors.Is(err, ErrBlockedAddress) && a.resolved:
		return fmt.Errorf("%w: %w", errResolved, err)
	}
	return err
}

func (a *dialAttempt) lookupFault(h *host, lookup *net.DNSError, err error) error {
	reason, isUnclear := lookupFault(lookup)
	if isUnclear {
		if isLocal, lasts := h.lookups.failed(a.name); isLocal {
			return newLocalError(ReasonLocalResolver, err, lasts)
		}
		return err
	}
	if reason != "" {
		return newLocalError(reason, err, h.lasts(reason))
	}
	return err
}

// connectFault returns the fault of an attempt that found no route to any address. If only this receiver has no route, such as an IPv6 receiver from a
// host without IPv6, its jobs are not retried for ever.
func (a *dialAttempt) connectFault(h *host, failed *failedConnect) error {
	if failed.reason != ReasonLocalRoute {
		return newLocalError(failed.reason, failed.err, h.lasts(failed.reason))
	}
	if isLocal, lasts := h.routes.failed(a.name); isLocal {
		return newLocalError(failed.reason, failed.err, lasts)
	}
	return failed.err
}
