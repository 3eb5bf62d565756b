package outgoing

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// wire is a connection that counts the bytes written to it, TLS included, and knows when it was read last. A count of 0 proves
// that nothing was sent.
type wire struct {
	net.Conn
	to      shaper.Origin // the receiver, whatever the connection leads through
	tls     *tls.Conn     // over it; nil for none
	began   time.Time
	written atomic.Int64
	read    atomic.Int64 // when bytes last arrived, in nanoseconds since began
}

func newWire(to shaper.Origin) *wire { return &wire{to: to, began: time.Now()} }

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if n > 0 {
		w.read.Store(int64(w.age()))
	}
	return n, err
}

func (w *wire) Write(p []byte) (int, error) {
	n, err := w.Conn.Write(p)
	w.written.Add(int64(n))
	return n, err
}

type wireKey struct{}

// withWire makes the transport put the connection that it dials into w.
func withWire(ctx context.Context, w *wire) context.Context {
	return context.WithValue(ctx, wireKey{}, w)
}

// age returns the time since the wire was made. It is the clock of lastRead.
func (w *wire) age() time.Duration { return time.Since(w.began) }

// lastRead returns the age of the wire at which bytes last arrived.
func (w *wire) lastRead() time.Duration { return time.Duration(w.read.Load()) }

// silence returns how long no bytes have arrived.
func (w *wire) silence() time.Duration { return w.age() - w.lastRead() }

// isHTTP2 reports whether the connection speaks HTTP/2. It is known after the handshake.
func (w *wire) isHTTP2() bool {
	return w.tls != nil && w.tls.ConnectionState().NegotiatedProtocol == "h2"
}
