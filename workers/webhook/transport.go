package webhook

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/tundish-io/tundish/workers"
)

// maxAnswerHeader bounds the headers of an answer.
const maxAnswerHeader = 64 << 10

// newTransport returns what makes the connections. There is no proxy: with one
// the guard would see the proxy's address. Nothing is decompressed: a small
// answer could become an endless one. Times are bounded by the context.
func newTransport(config Config) *http.Transport {
	dialer := &net.Dialer{Control: workers.Guard(config.AllowNetworks)}
	return &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			w := ctx.Value(wireKey{}).(*wire)
			w.Conn = conn
			return w, nil
		},
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxAnswerHeader,
	}
}

// wire is a connection that counts the bytes written to it, TLS included. A count of 0 proves
// that nothing was sent.
type wire struct {
	net.Conn
	written atomic.Int64
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
