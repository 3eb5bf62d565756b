package httpapi

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
)

// spareConnections are beyond the bound of requests, for probes and for requests that are refused.
const spareConnections = 64

// connections bounds the connections of a listener. A connection beyond the bound replaces the one that has been idle for longest, and waits only while
// none is idle. A connection is active while its request counts against the bound of requests. It is idle before and after, also during the response to
// a probe or a refused request. So a client that doesn't read its response can't block others.
//
//	Accept ──► idle ◄──► active      see bounds.place
//	             └─────────┴──► Close
type connections struct {
	net.Listener

	mu     sync.Mutex
	change sync.Cond // a connection is idle or closed, or the listener is closed
	most   int
	open   int
	idle   list.List // of *connection, the longest idle first
	closed bool
}

func limitConnections(listener net.Listener, most int) *connections {
	c := &connections{Listener: listener, most: most}
	c.change.L = &c.mu
	return c
}

// Accept waits for a connection, and for a place for it.
func (c *connections) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.open >= c.most && !c.closed {
		if longest := c.idle.Front(); longest != nil {
			evicted, _ := longest.Value.(*connection)
			c.drop(evicted)
			_ = evicted.Conn.Close()
		} else {
			c.change.Wait()
		}
	}
	if c.closed {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	c.open++
	mine := &connection{Conn: conn, of: c}
	mine.idle = c.idle.PushBack(mine)
	return mine, nil
}

// Close closes the listener, not its connections.
func (c *connections) Close() error {
	c.mu.Lock()
	c.closed = true
	c.change.Broadcast()
	c.mu.Unlock()
	return c.Listener.Close()
}

// drop removes a connection from the count.
func (c *connections) drop(conn *connection) {
	if conn.gone {
		return
	}
	conn.gone = true
	c.open--
	c.leaveIdle(conn)
	c.change.Broadcast()
}

func (c *connections) leaveIdle(conn *connection) {
	if conn.idle != nil {
		c.idle.Remove(conn.idle)
		conn.idle = nil
	}
}

// follow is the ConnState hook of the server. A connection is idle since its last response was sent.
func (c *connections) follow(conn net.Conn, state http.ConnState) {
	if mine, ok := conn.(*connection); ok && state == http.StateIdle {
		c.occupy(mine, 0)
	}
}

// occupy adds places to the number that the requests of a connection occupy.
func (c *connections) occupy(conn *connection, places int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn.places += places
	if conn.gone {
		return
	}
	c.leaveIdle(conn)
	if conn.places == 0 {
		conn.idle = c.idle.PushBack(conn)
		c.change.Broadcast()
	}
}

type connectionKey struct{}

// withConnection is the ConnContext of the server.
func withConnection(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, conn)
}

// occupyConnection makes the connection of a request active until release. It does nothing for a request without a connection.
func occupyConnection(r *http.Request) (release func()) {
	mine, ok := r.Context().Value(connectionKey{}).(*connection)
	if !ok {
		return func() {}
	}
	mine.of.occupy(mine, 1)
	return func() { mine.of.occupy(mine, -1) }
}

// connection is one that connections has accepted. The mutex of that guards the fields.
type connection struct {
	net.Conn

	of     *connections
	idle   *list.Element // nil while a request has a place
	places int           // a page of the console has one more for each of its own requests
	gone   bool
}

// Close closes the connection.
func (c *connection) Close() error {
	c.of.mu.Lock()
	c.of.drop(c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
