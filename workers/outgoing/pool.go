package outgoing

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// pool keeps connections. It is our own because the permit is used between two steps that [http.Transport.RoundTrip] does in one: to get a connection
// ready, and to write the request. A connection is listed while it can take another request: one of HTTP/1 when it is idle, one of HTTP/2 also while it
// is in use. The one used last is used next, so that the others grow old and close. One that expires or falls silent is no longer listed; its requests
// end on it.
type pool struct {
	transport  func() *http.Transport // dials; keeps nothing itself
	maxPerHost int
	maxTotal   int
	maxAge     time.Duration // of a connection; 0: any

	mu     sync.Mutex // guards the following fields, and those that conn marks
	lists  map[shaper.Origin][]*conn
	total  int // connections in lists
	closed bool
}

func newPool(concurrency int, maxAge time.Duration, transport func() *http.Transport) *pool {
	return &pool{
		transport:  transport,
		maxPerHost: concurrency,
		maxTotal:   2 * concurrency,
		maxAge:     maxAge,
		lists:      map[shaper.Origin][]*conn{},
	}
}

// get returns a connection with room for one request, and whether it is reused. Give it back by put, release or discard.
func (p *pool) get(ctx context.Context, o shaper.Origin) (c *conn, reused bool, err error) {
	if c := p.take(o); c != nil {
		return c, true, nil
	}
	c = &conn{origin: o, wire: newWire(o), users: 1, expires: expiry(p.maxAge)}
	c.ClientConn, err = p.transport().NewClientConn(withWire(ctx, c.wire), o.Scheme, o.Address())
	if err != nil {
		return nil, false, err
	}
	c.isHTTP2 = c.wire.isHTTP2()
	if err := c.Reserve(); err != nil { // the receiver hung up at once
		p.discard(c)
		return nil, false, err
	}
	return c, false, nil
}

// take reserves a listed connection, or returns nil.
func (p *pool) take(o shaper.Origin) *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		conns := p.lists[o]
		if len(conns) == 0 {
			return nil
		}
		c := conns[len(conns)-1]
		if c.isOld() || c.isSilent() || c.Reserve() != nil { // the last: dead, retired by the receiver, or full
			p.unlist(c)
			if c.users == 0 {
				go c.Close() // may take a while: the peer may not read
			}
			continue
		}
		if c.Available() == 0 {
			p.unlist(c)
		}
		c.users++
		if c.idle != nil {
			c.idle.Stop()
		}
		return c
	}
}

// put returns a connection whose request got its response.
func (p *pool) put(c *conn) { p.back(c, true) }

// back returns a connection that carried a request, or did not.
func (p *pool) back(c *conn, isUsed bool) {
	alive := c.Err() == nil
	p.mu.Lock()
	c.isUsed = c.isUsed || isUsed
	c.users--
	if alive && !c.retired && !p.closed && !c.isOld() && c.Available() > 0 {
		p.list(c)
	} else {
		p.unlist(c)
	}
	unused := c.users == 0
	if unused && c.listed {
		p.rest(c)
		unused = false
	}
	p.mu.Unlock()
	if unused {
		c.Close()
	}
}

// release returns a connection that was not used. c may be nil.
func (p *pool) release(c *conn) {
	if c == nil {
		return
	}
	c.Release()
	p.back(c, false)
}

// discard returns a connection that failed. The other requests on it, if there are any, may end.
func (p *pool) discard(c *conn) {
	p.mu.Lock()
	c.retired = true
	p.mu.Unlock()
	p.put(c)
}

// list needs p.mu. It does nothing if c is listed or the pool is full.
func (p *pool) list(c *conn) {
	if c.listed || p.total == p.maxTotal || len(p.lists[c.origin]) == p.maxPerHost {
		return
	}
	p.lists[c.origin] = append(p.lists[c.origin], c)
	c.listed = true
	p.total++
}

// unlist needs p.mu. It does nothing if c is not listed.
func (p *pool) unlist(c *conn) {
	if !c.listed {
		return
	}
	conns := p.lists[c.origin]
	i := slices.Index(conns, c)
	p.lists[c.origin] = slices.Delete(conns, i, i+1)
	if len(conns) == 1 {
		delete(p.lists, c.origin)
	}
	c.listed = false
	p.total--
}

// rest needs p.mu. It closes c later, unless it is taken before.
func (p *pool) rest(c *conn) {
	if c.idle != nil {
		c.idle.Reset(c.restFor())
		return
	}
	c.idle = time.AfterFunc(c.restFor(), func() {
		p.mu.Lock()
		unused := c.users == 0
		if unused {
			p.unlist(c)
		}
		p.mu.Unlock()
		if unused {
			c.Close()
		}
	})
}

func (p *pool) kept() (connections, origins int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total, len(p.lists)
}

// close closes the idle connections now, and the others when they are returned.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	var unused []*conn
	for _, conns := range p.lists {
		for _, c := range conns {
			c.listed = false
			if c.users == 0 {
				c.idle.Stop()
				unused = append(unused, c)
			}
		}
	}
	clear(p.lists)
	p.total = 0
	p.mu.Unlock()
	for _, c := range unused {
		c.Close()
	}
}
