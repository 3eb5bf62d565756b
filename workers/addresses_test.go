package workers

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
)

// The next address is tried while one does not respond, in the other family first.
func TestConnectDoesNotWaitForDeadAddress(t *testing.T) {
	t.Parallel()
	_, port, _ := net.SplitHostPort(newListener(t))
	names := resolverFor(t, map[string]string{"both.example.": "::1 127.0.0.1", "dead.example.": "::1 ::2"})
	d := &spreadDialer{net.Dialer{Resolver: names, ControlContext: func(ctx context.Context, network, _ string, _ syscall.RawConn) error {
		if network == "tcp6" {
			<-ctx.Done() // swallows every packet
			return ctx.Err()
		}
		return nil
	}}}
	for range 4 {
		conn := must.Get(d.DialContext(t.Context(), "tcp", net.JoinHostPort("both.example", port)))(t)
		conn.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := d.DialContext(ctx, "tcp", net.JoinHostPort("dead.example", port)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a connect without an end: %v", err)
	}
}

func TestSpread(t *testing.T) {
	t.Parallel()
	var addrs []netip.Addr
	for _, addr := range strings.Fields("2001:db8::1 2001:db8::2 192.0.2.1 192.0.2.2 192.0.2.3") {
		addrs = append(addrs, netip.MustParseAddr(addr))
	}
	first := map[netip.Addr]int{}
	for range 200 {
		order := spread(addrs)
		first[order[0]]++
		if len(order) != 5 || !order[0].Is6() || !order[1].Is4() || !order[2].Is6() || !order[3].Is4() || !order[4].Is4() {
			t.Fatalf("order %v: want the families in turn", order)
		}
	}
	must.Equal(t, len(first), 2, "%v are tried first, want both of the preferred family", first)
	many := make([]netip.Addr, 1000)
	for i := range many {
		many[i] = netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)})
	}
	must.Equal(t, len(spread(many)), maxAddresses, "addresses are tried")
}
