package faultproxy

import (
	"bytes"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// quiet is how long Redis must send nothing before a lost reply counts as complete; the rest of a long pipeline follows without a pause.
	quiet = 5 * time.Millisecond

	// farewell bounds the wait for Redis to close after we have.
	farewell = time.Second
)

// link is one client's connection and the one to Redis that belongs to it.
type link struct {
	proxy  *Proxy
	client net.Conn
	server *net.TCPConn

	once   sync.Once
	closed chan struct{}

	dropping atomic.Pointer[drop] // set just before its request is written
}

// close ends both connections. It does not wait.
func (l *link) close() {
	l.once.Do(func() {
		close(l.closed)
		l.client.Close()
		l.server.Close()
	})
}

// run passes bytes in both directions until one side ends.
func (l *link) run() {
	requests, replies := newPipe(), newPipe()
	var both sync.WaitGroup
	both.Go(func() { l.read(l.client, requests, func() bool { return true }) })
	both.Go(func() { l.write(l.server, requests, l.watch()) })
	both.Go(func() { l.read(l.server, replies, l.keepReply) })
	both.Go(func() { l.write(l.client, replies, func([]byte) {}) })
	both.Wait()
}

// read fills the pipe from src, as long as keep returns true.
func (l *link) read(src net.Conn, to *pipe, keep func() bool) {
	defer to.end()
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			if !keep() {
				return
			}
			to.push(chunk{bytes.Clone(buf[:n]), time.Now().Add(l.proxy.delay())})
		}
		if err != nil || !l.wait(0) {
			return
		}
	}
}

// write empties the pipe into dst, each chunk at its time, and shows it to look before. At the end it closes the link.
func (l *link) write(dst net.Conn, from *pipe, look func([]byte)) {
	defer l.close()
	for {
		next, ok := from.pop(l.closed)
		if !ok || !l.wait(time.Until(next.due)) {
			return
		}
		look(next.data)
		if _, err := dst.Write(next.data); err != nil {
			return
		}
	}
}

// wait returns true after d, and not while the proxy is frozen; or false when
// the link has been closed.
func (l *link) wait(d time.Duration) bool {
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-l.closed:
			return false
		}
	}
	select {
	case <-l.proxy.gate():
		return true
	case <-l.closed:
		return false
	}
}

// watch returns a function that searches for the request whose reply is to be lost. It keeps the end of the last chunk: a match may span two chunks.
func (l *link) watch() func([]byte) {
	const longest = 256
	var tail []byte
	return func(data []byte) {
		if l.dropping.Load() == nil {
			l.dropping.Store(l.proxy.takeDrop(tail, data))
		}
		tail = append(tail, data[max(0, len(data)-longest):]...)
		tail = append(tail[:0], tail[max(0, len(tail)-longest):]...)
	}
}

// keepReply reports whether a reply is for the client. If it is the one to lose, keepReply first makes sure that Redis has carried out everything it was
// sent, and then closes the link.
func (l *link) keepReply() bool {
	d := l.dropping.Load()
	if d == nil {
		return true
	}
	buf := make([]byte, 64<<10)
	for {
		_ = l.server.SetReadDeadline(time.Now().Add(quiet))
		if _, err := l.server.Read(buf); err != nil {
			break
		}
	}
	// Redis reads to the end before it closes its side.
	_ = l.server.CloseWrite()
	_ = l.server.SetReadDeadline(time.Now().Add(farewell))
	_, _ = io.Copy(io.Discard, l.server)
	l.close()
	close(d.done)
	return false
}

// chunk is bytes that were read together and may be written at due.
type chunk struct {
	data []byte
	due  time.Time
}

// pipe is an unbounded queue of chunks in transit. It holds at most the chunks of one delay.
type pipe struct {
	mu     sync.Mutex
	chunks []chunk
	ended  bool
	news   chan struct{}
}

func newPipe() *pipe { return &pipe{news: make(chan struct{}, 1)} }

func (p *pipe) push(c chunk) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.chunks = append(p.chunks, c)
	p.wakeLocked()
}

// end marks the end of the chunks.
func (p *pipe) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.wakeLocked()
}

func (p *pipe) wakeLocked() {
	select {
	case p.news <- struct{}{}:
	default:
	}
}

// pop waits for the next chunk. It returns false at the end and on closed.
func (p *pipe) pop(closed <-chan struct{}) (chunk, bool) {
	for {
		if c, ok, ended := p.take(); ok || ended {
			return c, ok
		}
		select {
		case <-p.news:
		case <-closed:
			return chunk{}, false
		}
	}
}

func (p *pipe) take() (c chunk, ok, ended bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.chunks) == 0 {
		return chunk{}, false, p.ended
	}
	c = p.chunks[0]
	p.chunks = p.chunks[1:]
	return c, true, false
}
