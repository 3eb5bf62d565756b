// Package faultproxy is a TCP proxy that breaks the connection to Redis in
// ways that tests need: slow, silent, cut, or with one reply lost.
package faultproxy

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

// Proxy passes connections on to its target. All methods may be called at any
// time and from any goroutine; they act on connections that exist as well as
// on later ones.
type Proxy struct {
	target   string
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex
	oneWay time.Duration
	links  map[*link]struct{}
	drops  []*drop
	thawed chan struct{} // closed while bytes may flow
	closed bool
}

// drop waits for a request that contains match.
type drop struct {
	match []byte
	done  chan struct{}
}

// New listens on a loopback port and passes connections on to target. When the
// target cannot be reached, the client's connection is closed.
func New(target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("faultproxy: %w", err)
	}
	p := &Proxy{
		target:   target,
		listener: listener,
		links:    make(map[*link]struct{}),
		thawed:   make(chan struct{}),
	}
	close(p.thawed)
	p.running.Go(p.accept)
	return p, nil
}

// Addr returns the host and port to connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// SetDelay makes every byte arrive half of roundTrip later, in each direction.
// It costs time and not throughput: what is sent meanwhile travels behind.
func (p *Proxy) SetDelay(roundTrip time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.oneWay = roundTrip / 2
}

// DropReply loses one reply. The next request that contains match, such as a
// command or the digest of a script, is passed on; when Redis has carried it
// out, the reply is swallowed and the client's connection is closed. The
// channel that it returns is closed when that has happened.
//
// A pipeline is one request: all that is still unanswered on the connection is
// lost with it. Several drops may be pending, and each loses one reply.
func (p *Proxy) DropReply(match string) <-chan struct{} {
	d := &drop{match: []byte(match), done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drops = append(p.drops, d)
	return d.done
}

// takeDrop returns the first pending drop whose match is in data, or begins in
// tail, the end of what came before, and ends in data; or nil.
func (p *Proxy) takeDrop(tail, data []byte) *drop {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.drops) == 0 {
		return nil
	}
	seen := slices.Concat(tail, data)
	for i, d := range p.drops {
		if bytes.Contains(seen[max(0, len(tail)-len(d.match)+1):], d.match) {
			p.drops = slices.Delete(p.drops, i, i+1)
			return d
		}
	}
	return nil
}

// Freeze holds all bytes back and keeps the connections open, as a network
// does that loses every packet. New connections are accepted, and hang.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.thawed:
		p.thawed = make(chan struct{})
	default: // frozen already
	}
}

// Thaw lets the bytes go that Freeze held back, in order.
func (p *Proxy) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.thawed: // not frozen
	default:
		close(p.thawed)
	}
}

// CutAll closes all connections of the moment. What is under way is lost.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

// Close stops listening, closes all connections and returns when nothing of
// the proxy runs any more.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.listener.Close()
	p.CutAll()
	p.running.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.running.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		client.Close()
		return
	}
	l := &link{proxy: p, client: client, server: server.(*net.TCPConn), closed: make(chan struct{})}
	p.mu.Lock()
	if p.closed {
		l.close()
	}
	p.links[l] = struct{}{}
	p.mu.Unlock()

	l.run()

	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// delay returns by how much a byte that is read now is late.
func (p *Proxy) delay() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.oneWay
}

// gate returns a channel that is closed when bytes may flow.
func (p *Proxy) gate() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.thawed
}
