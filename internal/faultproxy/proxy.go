// Package faultproxy is a TCP proxy that breaks the connection to Redis in
// ways that tests need: slow, silent, cut, or with one reply lost.
package faultproxy

import (
	"fmt"
	"net"
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

// CutAll closes all current connections. Bytes in transit are lost.
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
