package redistest

import (
	"net"
	"slices"
	"sync"
)

// roomy is a connection with a buffer for unread bytes, as a network has. A [net.Pipe], which a bubble of testing/synctest needs, has none: while one
// end writes a long pipeline and the other end writes the first replies, neither reads.
type roomy struct {
	net.Conn
	writes chan []byte
	closed chan struct{}
	once   sync.Once
}

// WithRoom adds a buffer for unread bytes to the connection of a dial.
func WithRoom(conn net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	r := &roomy{Conn: conn, writes: make(chan []byte, 100), closed: make(chan struct{})}
	go func() {
		for {
			select {
			case <-r.closed:
				return
			case p := <-r.writes:
				if _, err := conn.Write(p); err != nil {
					_ = r.Close()
				}
			}
		}
	}()
	return r, nil
}

func (r *roomy) Write(p []byte) (int, error) {
	select {
	case <-r.closed:
		return 0, net.ErrClosed
	case r.writes <- slices.Clone(p):
		return len(p), nil
	}
}

func (r *roomy) Close() error {
	r.once.Do(func() { close(r.closed) })
	return r.Conn.Close()
}
