package httpapi

import (
	"container/list"
	"net"
	"net/http"
	"sync"
)

// spareConnections are beyond the bound of requests, for probes and for requests that are refused.
const spareConnections = 64

// connections bounds the connections of a listener. A connection beyond the bound replaces the one that has been idle for longest, and
// waits only while none is idle. A connection is idle before the header of its first request has arrived, and between requests.
//
//	Accept ──► idle ◄──► active      as the server's ConnState tells
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

// drop takes a connection out of the count.
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

// follow is the ConnState of the server.
func (c *connections) follow(conn net.Conn, state http.ConnState) {
	mine, ok := conn.(*connection)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case mine.gone:
	case state == http.StateActive:
		c.leaveIdle(mine)
	case state == http.StateIdle:
		c.leaveIdle(mine)
		mine.idle = c.idle.PushBack(mine)
		c.change.Broadcast()
	}
}

// connection is one that connections has accepted. The mutex of that guards the fields.
type connection struct {
	net.Conn

	of   *connections
	idle *list.Element // nil while a request is under way
	gone bool
}

// Close closes the connection.
func (c *connection) Close() error {
	c.of.mu.Lock()
	c.of.drop(c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
