package outgoing

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

// receiver speaks HTTP/2 in frames over pipes, for use within a bubble. It does with each request what its function does.
type receiver struct {
	onRequest func(p *peer, stream uint32)
	config    *tls.Config

	mu    sync.Mutex
	peers []*peer
}

// peer is one connection of a receiver.
type peer struct {
	number   int // from 1
	began    time.Time
	requests atomic.Int64
	frozen   atomic.Bool // takes everything and sends nothing
	closed   atomic.Bool
	out      chan func(*http2.Framer) // written by one goroutine, so that a full pipe stops no reading
	conn     net.Conn
}

// newReceiver makes s connect to a receiver, whatever the name of the host.
func newReceiver(t *testing.T, s *Sender, onRequest func(p *peer, stream uint32)) *receiver {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS() // for its certificate
	server.Close()
	r := &receiver{onRequest: onRequest, config: &tls.Config{Certificates: server.TLS.Certificates, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}}
	transport := s.conns.transport()
	transport.DialTLSContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		near, far := net.Pipe()
		go r.serve(far)
		w := ctx.Value(wireKey{}).(*wire)
		w.Conn = near
		w.tls = tls.Client(w, &tls.Config{NextProtos: []string{"h2"}, InsecureSkipVerify: true})
		return w.tls, nil
	}
	return r
}

func (r *receiver) serve(far net.Conn) {
	conn := tls.Server(far, r.config)
	defer far.Close()
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(conn, preface); err != nil {
		return
	}
	framer := http2.NewFramer(conn, conn)
	p := &peer{out: make(chan func(*http2.Framer), 10_000), conn: far, began: time.Now()}
	defer p.closed.Store(true)
	r.mu.Lock()
	r.peers = append(r.peers, p)
	p.number = len(r.peers)
	r.mu.Unlock()
	go func() {
		for write := range p.out {
			write(framer)
		}
	}()
	defer close(p.out)
	p.send(func(f *http2.Framer) { _ = f.WriteSettings() })
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return
		}
		r.take(p, frame)
	}
}

func (r *receiver) take(p *peer, frame http2.Frame) {
	switch frame := frame.(type) {
	case *http2.SettingsFrame:
		if !frame.IsAck() {
			p.send(func(f *http2.Framer) { _ = f.WriteSettingsAck() })
		}
	case *http2.PingFrame:
		if data := frame.Data; !frame.IsAck() {
			p.send(func(f *http2.Framer) { _ = f.WritePing(true, data) })
		}
	case *http2.HeadersFrame:
		p.requests.Add(1)
		r.onRequest(p, frame.StreamID)
	}
}

// conns returns the connections that were made so far.
func (r *receiver) conns() []*peer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*peer{}, r.peers...)
}

// requests returns how many requests came.
func (r *receiver) requests() (n int64) {
	for _, p := range r.conns() {
		n += p.requests.Load()
	}
	return n
}

func (p *peer) send(write func(*http2.Framer)) {
	if !p.frozen.Load() {
		p.out <- write
	}
}

func (p *peer) respond(stream uint32) {
	var block bytes.Buffer
	_ = hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: "204"})
	p.send(func(f *http2.Framer) {
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
	})
}

func (p *peer) reset(stream uint32, code http2.ErrCode) {
	p.send(func(f *http2.Framer) { _ = f.WriteRSTStream(stream, code) })
}

func (p *peer) goAway(last uint32, code http2.ErrCode) {
	p.send(func(f *http2.Framer) { _ = f.WriteGoAway(last, code, nil) })
}

func (p *peer) hangUp() { p.send(func(*http2.Framer) { p.conn.Close() }) }

// attempt sends an empty request with a permit that is void after ttl, and counts its departures.
func attempt(t *testing.T, s *Sender, ttl time.Duration, departures *atomic.Int64) shaper.Outcome {
	t.Helper()
	target := must.Get(ParseURL("https://example.com/"))(t)
	a := shaper.NewAttempt(time.Now(), ttl, func(time.Duration) { departures.Add(1) })
	return s.Send(t.Context(), a, &Request{To: target, Header: http.Header{}})
}
