package workers

import (
	"errors"
	"math/rand/v2"
	"net"
	"strings"
	"syscall"
	"time"
)

// LocalError is the error of a connection that this host could not make: no packet reached the receiver, which is not to blame.
type LocalError struct {
	Reason string        // one of the ReasonLocal… words
	Wait   time.Duration // until the job is tried again
	Err    error
}

func (e *LocalError) Error() string { return remedies[e.Reason] + ": " + e.Err.Error() }

func (e *LocalError) Unwrap() error { return e.Err }

// remedies describe faults of this host, and their remedies.
var remedies = map[string]string{
	ReasonLocalResolver:    "this host's DNS resolver does not work (check /etc/resolv.conf and its servers)",
	ReasonLocalDescriptors: "this host has no free file descriptor (raise ulimit -n, or lower dispatcher.concurrency)",
	ReasonLocalPorts:       "this host has no free local port (widen net.ipv4.ip_local_port_range, or add a host)",
	ReasonLocalRoute:       "this host has no route to the receiver, or a firewall rule against it (check ip route get)",
	ReasonLocalMemory:      "this host's kernel has no memory for a connection (check net.ipv4.tcp_mem)",
	ReasonLocalProxy:       "this host's egress proxy cannot be used (check egress_proxy and the proxy)",
}

// Bounds of how long a job waits after a fault of this host.
const (
	minLocalWait = time.Second
	maxLocalWait = 30 * time.Second
)

// newLocalError returns the error of a fault that has lasted since the given time. A job waits for half as long as the fault has lasted.
func newLocalError(reason string, err error, since time.Duration) *LocalError {
	wait := min(max(since/2, minLocalWait), maxLocalWait)                     //nolint:mnd // half
	return &LocalError{Reason: reason, Wait: wait + rand.N(wait/2), Err: err} //nolint:gosec,mnd // jitter
}

// exhausted are the errors that always are of this host.
var exhausted = []struct {
	errno  syscall.Errno
	reason string
}{
	{syscall.EMFILE, ReasonLocalDescriptors},
	{syscall.ENFILE, ReasonLocalDescriptors},
	{syscall.ENOBUFS, ReasonLocalMemory},
	{syscall.ENOMEM, ReasonLocalMemory},
}

// exhaustedReason returns the reason of an error that is always the fault of this host, otherwise "". A lookup error has only the text of its cause.
func exhaustedReason(err error) string {
	lookup, isLookup := errors.AsType[*net.DNSError](err)
	for _, one := range exhausted {
		if errors.Is(err, one.errno) || isLookup && strings.HasSuffix(lookup.Err, one.errno.Error()) {
			return one.reason
		}
	}
	return ""
}

// NoProxy returns err as a [LocalError] of the egress proxy, if it is not one already.
func NoProxy(err error) error {
	if is[*LocalError](err) {
		return err
	}
	return newLocalError(ReasonLocalProxy, err, thisHost.lasts(ReasonLocalProxy))
}

// Local returns err as a [LocalError] if this host had no descriptor or no memory for an operation, such as to read a file. Otherwise it returns err.
func Local(err error) error {
	if reason := exhaustedReason(err); reason != "" {
		return newLocalError(reason, err, thisHost.lasts(reason))
	}
	return err
}

// unreachable are the errors of a connection to an address without a route from this host. They also come from a router far away.
var unreachable = []syscall.Errno{syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.EADDRNOTAVAIL, syscall.EACCES, syscall.EPERM}

// connectReason returns the reason of a connect error that may be the fault of this host, otherwise "". It asks the kernel for a route again, with a UDP
// socket, whose connect sends no packet. If there is a route, a router reported the network as unreachable: that is no fault of this host.
func connectReason(err error, address string) string {
	if reason := exhaustedReason(err); reason != "" {
		return reason
	}
	for _, errno := range unreachable {
		if !errors.Is(err, errno) {
			continue
		}
		conn, noRoute := net.Dial("udp", address) //nolint:noctx // an address with a port: it does not wait
		if noRoute == nil {
			conn.Close()
		}
		switch {
		case noRoute != nil, errno == syscall.EPERM, errno == syscall.EACCES:
			return ReasonLocalRoute
		case errno == syscall.EADDRNOTAVAIL:
			return ReasonLocalPorts
		}
		return ""
	}
	return ""
}

// resolverErrors are the errors of a connection to a server of DNS that is not there.
var resolverErrors = []syscall.Errno{
	syscall.ECONNREFUSED, syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.EADDRNOTAVAIL, syscall.EPERM, syscall.EACCES,
}

// lookupFault returns the source of a lookup error: this host, for a reason; the name or this host (isUnclear); or otherwise the name. If a DNS server
// does not respond, or responds with SERVFAIL, the fault may be its own or a fault of the servers of the name's zone.
func lookupFault(err *net.DNSError) (reason string, isUnclear bool) {
	if err.IsNotFound {
		return "", false
	}
	if reason := exhaustedReason(err); reason != "" {
		return reason, false
	}
	for _, errno := range resolverErrors {
		if strings.HasSuffix(err.Err, errno.Error()) {
			return ReasonLocalResolver, false
		}
	}
	return "", err.IsTimeout || err.IsTemporary || strings.HasSuffix(err.Err, "server misbehaving") || strings.HasSuffix(err.Err, "lame referral")
}
