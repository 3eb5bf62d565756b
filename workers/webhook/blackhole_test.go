package webhook

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/outgoing"
)

// TestBlackHoledAAAA: a host whose AAAA address swallows every packet, and whose A address responds, gets the rate, whether it keeps connections or not: each
// connect takes the delay of Happy Eyeballs (250 ms), and no permit comes back for that. A host of the same server that has the A address alone is
// compared with it. What the connects cost is Linux's own: the listener of the AAAA address has a full backlog.
func TestBlackHoledAAAA(t *testing.T) {
	t.Parallel()
	rate, length := 20, 2*time.Second
	if redistest.Soak {
		rate, length = 10, 30*time.Second
	}
	for _, closes := range []bool{false, true} {
		t.Run(fmt.Sprint("closes ", closes), func(t *testing.T) {
			t.Parallel()
			near := aaaaRow(t, "near.example", closes, rate, length)
			holed := aaaaRow(t, "holed.example", closes, rate, length)
			if holed < .65*near {
				t.Errorf("%.2f/s, and %.2f/s without the AAAA address", holed, near)
			}
		})
	}
}

// aaaaRow delivers jobs to a host of that name, and returns the rate of their arrivals.
func aaaaRow(t *testing.T, name string, closes bool, rate int, length time.Duration) float64 {
	t.Helper()
	n := int(float64(rate) * length.Seconds())
	f := newFarReceiver(t, 0, false, false, closes, n)
	port := f.Listener.Addr().(*net.TCPAddr).Port
	blackHole(t, netip.AddrPortFrom(netip.IPv6Loopback(), uint16(port)))
	names := map[string][]netip.Addr{
		"near.example.": {netip.MustParseAddr("127.0.0.1")}, "holed.example.": {netip.IPv6Loopback(), netip.MustParseAddr("127.0.0.1")},
	}
	var sending outgoing.Config
	w := newWorker(t, func(c *Config) {
		c.AllowNetworks = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
		sending = c.sending()
	})
	w.sender.Close()
	sending.Resolver = resolverOf(names)
	sender := must.Get(outgoing.NewSender(sending))(t)
	w.sender = sender
	var first, late atomic.Int64
	counting := shaper.WorkerFunc(func(ctx context.Context, a *shaper.Attempt) shaper.Outcome {
		began := time.Now()
		outcome := w.Deliver(ctx, a)
		first.CompareAndSwap(0, int64(time.Since(began)))
		if outcome.Result == shaper.ResultReturned && outcome.Reason == shaper.ReasonLateConnect {
			late.Add(1)
		}
		return outcome
	})
	b := shaper.DefaultBucket()
	b.Name, b.Burst, b.Rate = "holed", 1, admission.Rate{Count: int64(rate), Per: time.Second, Unit: admission.UnitRequests}
	jobs := make([]shaper.Job, n)
	for i := range jobs {
		jobs[i] = shaper.Job{Bucket: b.Name, ID: fmt.Sprint("j", i), URL: fmt.Sprintf("http://%s:%d/", name, port), Payload: []byte("{}")}
	}
	f.delivers(t, b, counting, jobs, 5*length)
	r := f.arrivals.Check()
	t.Logf("%-13s closes %-5t: %d of %d at %.2f/s (want %d), most in 1s %d, in 100ms %d, connections %d; the first delivery took %s, late %d",
		name, closes, f.count.Load(), n, r.Rate, rate, r.MostIn(time.Second), r.MostIn(100*time.Millisecond), f.conns.Load(), time.Duration(first.Load()), late.Load())
	if int(f.count.Load()) != n || r.Rate > float64(rate)*1.2 || late.Load() > 0 {
		t.Errorf("%d of %d arrived, at %.2f/s; %d permits came back", f.count.Load(), n, r.Rate, late.Load())
	}
	if name != "near.example" && time.Duration(first.Load()) < 200*time.Millisecond {
		t.Errorf("the first delivery took %s: the AAAA address was not tried", time.Duration(first.Load()))
	}
	return r.Rate
}

// blackHole listens on an address and has the system drop all that is sent to it: its backlog is full.
func blackHole(t *testing.T, at netip.AddrPort) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", at.String())
	if err != nil {
		t.Skip("no IPv6 here: ", err)
	}
	t.Cleanup(func() { _ = l.Close() })
	raw := must.Get(l.(*net.TCPListener).SyscallConn())(t)
	var again error
	if err := raw.Control(func(fd uintptr) { again = syscall.Listen(int(fd), 0) }); err != nil || again != nil {
		t.Fatal(err, again)
	}
	for range 10 {
		conn, err := net.DialTimeout("tcp", at.String(), 200*time.Millisecond)
		if err != nil {
			return
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	t.Skip("this system accepts connections beyond the backlog")
}

// resolverOf answers names by their addresses.
func resolverOf(names map[string][]netip.Addr) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe() // DNS over TCP
		go serveDNS(far, names)
		return near, nil
	}}
}

func serveDNS(conn net.Conn, names map[string][]netip.Addr) {
	defer conn.Close()
	for {
		var length [2]byte
		if _, err := io.ReadFull(conn, length[:]); err != nil {
			return
		}
		text := make([]byte, binary.BigEndian.Uint16(length[:]))
		var message dnsmessage.Message
		if _, err := io.ReadFull(conn, text); err != nil || message.Unpack(text) != nil {
			return
		}
		question := message.Questions[0]
		header := dnsmessage.ResourceHeader{Name: question.Name, Class: question.Class, TTL: 1}
		for _, addr := range names[question.Name.String()] {
			switch {
			case question.Type == dnsmessage.TypeA && addr.Is4():
				message.Answers = append(message.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: addr.As4()}})
			case question.Type == dnsmessage.TypeAAAA && addr.Is6():
				message.Answers = append(message.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: addr.As16()}})
			}
		}
		message.Response, message.Additionals = true, nil
		answer, err := message.Pack()
		if err != nil {
			return
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
			return
		}
	}
}
