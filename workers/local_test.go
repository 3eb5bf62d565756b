package workers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

func TestLookupFault(t *testing.T) {
	t.Parallel()
	onSocket := func(errno syscall.Errno) string {
		return (&net.OpError{Op: "read", Net: "udp", Err: os.NewSyscallError("read", errno)}).Error()
	}
	for _, row := range []struct {
		name    string
		err     net.DNSError
		reason  string
		unclear bool
	}{
		{"NXDOMAIN", net.DNSError{Err: "no such host", IsNotFound: true}, "", false},
		{"no server is there", net.DNSError{Err: onSocket(syscall.ECONNREFUSED), IsTemporary: true}, ReasonLocalResolver, false},
		{"no route to a server", net.DNSError{Err: onSocket(syscall.ENETUNREACH), IsTemporary: true}, ReasonLocalResolver, false},
		{"no route to the server's host", net.DNSError{Err: onSocket(syscall.EHOSTUNREACH), IsTemporary: true}, ReasonLocalResolver, false},
		{"no descriptor", net.DNSError{Err: onSocket(syscall.EMFILE), IsTemporary: true}, ReasonLocalDescriptors, false},
		{"no descriptor on the machine", net.DNSError{Err: onSocket(syscall.ENFILE), IsTemporary: true}, ReasonLocalDescriptors, false},
		{"no buffer", net.DNSError{Err: onSocket(syscall.ENOBUFS), IsTemporary: true}, ReasonLocalMemory, false},
		{"no answer", net.DNSError{Err: "i/o timeout", IsTimeout: true, IsTemporary: true}, "", true},
		{"SERVFAIL", net.DNSError{Err: "server misbehaving", IsTemporary: true}, "", true},
		{"REFUSED", net.DNSError{Err: "server misbehaving"}, "", true},
		{"not a name", net.DNSError{Err: "cannot marshal DNS message"}, "", false},
	} {
		if reason, unclear := lookupFault(&row.err); reason != row.reason || unclear != row.unclear {
			t.Errorf("%s: %q, unclear %t, want %q, %t", row.name, reason, unclear, row.reason, row.unclear)
		}
	}
}

func TestConnectReason(t *testing.T) {
	t.Parallel()
	server := newListener(t)
	failed := func(errno syscall.Errno) error { return dialError(os.NewSyscallError("connect", errno)) }
	for _, row := range []struct {
		errno   syscall.Errno
		address string
		want    string
	}{
		{syscall.EMFILE, server, ReasonLocalDescriptors},
		{syscall.ENFILE, server, ReasonLocalDescriptors},
		{syscall.ENOBUFS, server, ReasonLocalMemory},
		{syscall.ENOMEM, server, ReasonLocalMemory},
		{syscall.EADDRNOTAVAIL, server, ReasonLocalPorts},
		{syscall.EPERM, server, ReasonLocalRoute},
		{syscall.ECONNREFUSED, server, ""},
		{syscall.ECONNRESET, server, ""},
		{syscall.ETIMEDOUT, server, ""},
		{syscall.ENETUNREACH, server, ""},  // there is a route: a router said so
		{syscall.EHOSTUNREACH, server, ""}, // the host does not answer ARP, say
	} {
		must.Equal(t, connectReason(failed(row.errno), row.address), row.want, "%v to %s", row.errno, row.address)
	}
}

func newListener(t *testing.T) string {
	t.Helper()
	l := must.Get((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

func TestEvidence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var e evidence
		judge := func(name string, want bool) {
			t.Helper()
			time.Sleep(time.Second) //nolint:forbidigo // in a bubble: no time passes
			if got, _ := e.failed(name); got != want {
				t.Errorf("%s fails at %s: of this host %t, want %t", name, time.Now().Format(time.TimeOnly), got, want)
			}
		}
		worked := func(name string) {
			time.Sleep(time.Second) //nolint:forbidigo // in a bubble: no time passes
			e.worked(name)
		}
		worked("a")
		worked("b")
		judge("broken", true) // the first time
		judge("broken", true) // no other name was tried since
		worked("a")
		judge("broken", false)
		worked("broken")
		judge("broken", true) // anew

		// All names fail: of this host, for as long as that lasts.
		for range 20 {
			for _, name := range []string{"a", "b", "c", "d", "e"} {
				judge(name, true)
			}
			time.Sleep(time.Minute) //nolint:forbidigo // in a bubble: no time passes
		}
		worked("a")
		judge("b", true) // most still fail
		for _, name := range []string{"b", "c", "d", "e"} {
			worked(name)
		}
		judge("broken", true)
		worked("c")
		judge("broken", false)
	})
}

// A zone that is broken for good is that of its owner, also where this process looks up no other name.
func TestEvidenceOfOneNameAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var e evidence
		for _, name := range []string{"one", "two"} { // of the same zone
			if isLocal, _ := e.failed(name); !isLocal {
				t.Errorf("%s: not of this host at first", name)
			}
		}
		time.Sleep(unprovenFor) //nolint:forbidigo // in a bubble: no time passes
		for _, name := range []string{"one", "two"} {
			if isLocal, lasts := e.failed(name); isLocal || lasts != unprovenFor {
				t.Errorf("%s: of this host %t after %s", name, isLocal, lasts)
			}
		}
	})
}

func TestEvidenceIsBounded(t *testing.T) {
	t.Parallel()
	var e evidence
	for i := range 2 * maxRecords {
		e.worked(fmt.Sprint(i))
		e.failed(fmt.Sprint(-i))
	}
	if len(e.names) > maxRecords {
		t.Errorf("%d names", len(e.names))
	}
}

// resolver answers each name by what the test says: "" with SERVFAIL, "none" with NXDOMAIN, "dead" not at all.
func resolverFor(t *testing.T, answers map[string]string) *net.Resolver {
	t.Helper()
	conn := must.Get((&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { conn.Close() })
	go serveNames(conn, answers)
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

func TestDialer(t *testing.T) {
	t.Parallel()
	server := newListener(t)
	_, port, _ := net.SplitHostPort(server)
	local := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	names := map[string]string{
		"good.example.": "127.0.0.1", "closed.example.": "127.0.0.1", "inner.example.": "10.0.0.1", "none.example.": "none", "broken.example.": "",
		"mixed.example.": "127.0.0.1 ::1", "nat64.example.": "64:ff9b::a00:1",
	}
	d := &Dialer{Allowed: local, Resolver: resolverFor(t, names), host: &host{}}
	dial := func(address string) shaper.Outcome {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		conn, err := d.DialContext(ctx, "tcp", address)
		if err != nil {
			return ClassifyError(err)
		}
		conn.Close()
		return shaper.Done(0)
	}
	closed := "1"
	for _, row := range []struct {
		address string
		result  shaper.Result
		reason  string
		signal  shaper.Signal
	}{
		{"good.example:" + port, shaper.ResultDone, "", shaper.SignalAccepted},
		{"broken.example:" + port, shaper.ResultReturned, ReasonLocalResolver, shaper.SignalNone},
		{"good.example:" + port, shaper.ResultDone, "", shaper.SignalAccepted},
		{"broken.example:" + port, shaper.ResultRetry, ReasonDNS, shaper.SignalFailed}, // others resolve
		{"none.example:" + port, shaper.ResultRetry, ReasonDNS, shaper.SignalFailed},
		{"closed.example:" + closed, shaper.ResultRetry, ReasonConnection, shaper.SignalFailed},
		{"inner.example:80", shaper.ResultRetry, ReasonBlockedAddress, shaper.SignalNone},
		{"nat64.example:80", shaper.ResultRetry, ReasonBlockedAddress, shaper.SignalNone},
		{"10.0.0.1:80", shaper.ResultDead, ReasonBlockedAddress, shaper.SignalNone},
		{"mixed.example:" + port, shaper.ResultDone, "", shaper.SignalAccepted},                // beside a blocked AAAA
		{"mixed.example:" + closed, shaper.ResultRetry, ReasonConnection, shaper.SignalFailed}, // the A decides
	} {
		got := dial(row.address)
		if got.Result != row.result || got.Reason != row.reason || got.Signal != row.signal || got.Local != (row.result == shaper.ResultReturned) {
			t.Errorf("%s: %+v, want %s %q, signal %d", row.address, got, row.result, row.reason, row.signal)
		}
	}
}

func TestLocalErrorIsAnOutcome(t *testing.T) {
	t.Parallel()
	cause := dialError(os.NewSyscallError("socket", syscall.EMFILE))
	for reason, remedy := range remedies {
		got := ClassifyError(fmt.Errorf("dial: %w", newLocalError(reason, cause, 0)))
		if got.Result != shaper.ResultReturned || !got.Local || got.Reason != reason || got.Signal != shaper.SignalNone || got.RetryIn < minLocalWait ||
			!strings.Contains(got.Detail, remedy) || !strings.Contains(got.Detail, "too many open files") {
			t.Errorf("%s: %+v", reason, got)
		}
	}
	if wait := newLocalError(ReasonLocalPorts, cause, time.Hour).Wait; wait > 2*maxLocalWait {
		t.Errorf("after an hour a job waits for %s", wait)
	}
	if err := Local(errors.New("no such file")); ClassifyError(err).Local {
		t.Errorf("%v is of this host", err)
	}
}
