package outgoing

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
)

// nameServer answers every name with its addresses, in the same order each time.
type nameServer struct {
	mu    sync.Mutex
	addrs []netip.Addr
}

func (n *nameServer) point(addrs ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addrs = nil
	for _, addr := range addrs {
		n.addrs = append(n.addrs, netip.MustParseAddr(addr))
	}
}

func (n *nameServer) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go n.serve(far)
		return near, nil
	}}
}

// serve answers in the form that DNS has over TCP.
func (n *nameServer) serve(conn net.Conn) {
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
		answer, err := n.answer(message)
		if err != nil {
			return
		}
		_, _ = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...))
	}
}

func (n *nameServer) answer(message dnsmessage.Message) ([]byte, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	question := message.Questions[0]
	message.Response, message.Additionals = true, nil
	if len(n.addrs) == 0 {
		message.RCode = dnsmessage.RCodeNameError
	}
	header := dnsmessage.ResourceHeader{Name: question.Name, Class: question.Class, TTL: 5}
	for _, addr := range n.addrs {
		switch {
		case addr.Is4() && question.Type == dnsmessage.TypeA:
			message.Answers = append(message.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: addr.As4()}})
		case addr.Is6() && question.Type == dnsmessage.TypeAAAA:
			message.Answers = append(message.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: addr.As16()}})
		}
	}
	return message.Pack()
}

// listenOn listens on the same port of each address, and counts what the server of each gets.
func listenOn(t *testing.T, addrs ...string) (port string, got map[string]*atomic.Int64) {
	t.Helper()
	got = map[string]*atomic.Int64{}
	port = "0"
	for _, addr := range addrs {
		listener, err := net.Listen("tcp", net.JoinHostPort(addr, port))
		if err != nil {
			t.Skipf("this machine has no %s with a free port: %v", addr, err)
		}
		_, port, _ = net.SplitHostPort(listener.Addr().String())
		count := new(atomic.Int64)
		got[addr] = count
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			count.Add(1)
			w.Header().Set("Connection", "close")
		}))
		server.Listener.Close()
		server.Listener = listener
		server.Start()
		t.Cleanup(server.Close)
	}
	return port, got
}

// named makes a sender that resolves names by the name server.
func named(t *testing.T, names *nameServer, maxAge time.Duration) *Sender {
	t.Helper()
	s := must.Get(NewSender(Config{
		Timeout: 15 * time.Second, Policy: workers.DefaultPolicy(), Concurrency: 8, ConnectionMaxAge: maxAge, Resolver: names.resolver(),
		AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")},
	}))(t)
	t.Cleanup(s.Close)
	return s
}

func TestConnectionsSpreadOverAddresses(t *testing.T) {
	t.Parallel()
	addrs := []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"}
	port, got := listenOn(t, addrs...)
	var names nameServer
	names.point(append(addrs, "127.0.0.4", "10.1.2.3")...) // nobody listens on the fourth, and the guard refuses the fifth
	s := named(t, &names, 0)
	for range 90 {
		want(t, send(t, s, "http://receiver.example:"+port+"/"), shaper.ResultDone, "")
	}
	for _, addr := range addrs {
		if n := got[addr].Load(); n < 10 {
			t.Errorf("%s got %d of 90 requests", addr, n)
		}
	}
}

func TestErrorsOfAddresses(t *testing.T) {
	t.Parallel()
	var names nameServer
	s := named(t, &names, 0)
	for _, c := range []struct {
		addrs  []string
		result shaper.Result
		reason string
	}{
		{[]string{"10.1.2.3", "169.254.169.254", "fd00::1"}, shaper.ResultRetry, workers.ReasonBlockedAddress},
		{[]string{"10.1.2.3"}, shaper.ResultRetry, workers.ReasonBlockedAddress},
		{[]string{"10.1.2.3", "127.0.0.4"}, shaper.ResultRetry, workers.ReasonConnection}, // the second may listen later
		{[]string{"127.0.0.4", "127.0.0.5"}, shaper.ResultRetry, workers.ReasonConnection},
		{nil, shaper.ResultRetry, workers.ReasonDNS},
	} {
		names.point(c.addrs...)
		want(t, send(t, s, "http://receiver.example:9/"), c.result, c.reason)
	}
}

// After a switch of its name a receiver is reached at the new address once its connections are old, also where these are never idle.
func TestConnectionsFollowTheName(t *testing.T) {
	t.Parallel()
	var old, current atomic.Int64
	started, respond := make(chan struct{}), make(chan struct{})
	receivers := make([]*httptest.Server, 2)
	port := "0"
	for i, count := range []*atomic.Int64{&old, &current} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if count.Add(1); r.URL.Path == "/slow" {
				close(started)
				<-respond
			}
		}))
		server.Listener.Close()
		listener, err := net.Listen("tcp", net.JoinHostPort([]string{"127.0.0.1", "127.0.0.2"}[i], port))
		if err != nil {
			t.Skip(err)
		}
		_, port, _ = net.SplitHostPort(listener.Addr().String())
		server.Listener, server.EnableHTTP2 = listener, true
		server.StartTLS()
		t.Cleanup(server.Close)
		receivers[i] = server
	}
	var names nameServer
	names.point("127.0.0.1")
	s := patient(t, named(t, &names, MinConnectionMaxAge))
	s.conns.transport().TLSClientConfig.RootCAs = receivers[0].Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	to := "https://example.com:" + port + "/" // a name of the certificate
	want(t, send(t, s, to), shaper.ResultDone, "")
	// The connection of that request carries a slow one too, so it never rests.
	slow := make(chan shaper.Outcome, 1)
	go func() { slow <- send(t, s, to+"slow") }()
	select {
	case <-started:
	case got := <-slow:
		t.Fatalf("the slow request: %+v", got)
	}
	names.point("127.0.0.2")
	until := time.Now().Add(20 * time.Second)
	for current.Load() == 0 && time.Now().Before(until) {
		want(t, send(t, s, to), shaper.ResultDone, "")
	}
	before := old.Load()
	want(t, send(t, s, to), shaper.ResultDone, "")
	if current.Load() < 2 || old.Load() != before {
		t.Errorf("the new address got %d requests, and the old one %d more", current.Load(), old.Load()-before)
	}
	close(respond)
	want(t, <-slow, shaper.ResultDone, "")
}
