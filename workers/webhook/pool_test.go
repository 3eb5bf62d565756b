package webhook

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
)

func TestConnectionsAreReused(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		var conns atomic.Int64
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(rw, strings.Repeat("a", 20_000)) // drained, not only looked at
		}))
		server.EnableHTTP2 = http2
		server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				conns.Add(1)
			}
		}
		server.StartTLS()
		t.Cleanup(server.Close)
		const parallel = 8
		w := newWorker(t, func(c *Config) { c.Concurrency = parallel })
		trust(w, server)
		var senders sync.WaitGroup
		for range parallel {
			senders.Go(func() {
				for range 50 {
					want(t, w.Deliver(t.Context(), newAttempt(server.URL)), shaper.ResultDone, "")
				}
			})
		}
		senders.Wait()
		if got := conns.Load(); got > parallel {
			t.Errorf("http2 %t: %d deliveries, %d at a time, took %d connections", http2, 50*parallel, parallel, got)
		}
	}
}

func TestConnectionsKeptAreBounded(t *testing.T) {
	t.Parallel()
	var together sync.WaitGroup
	together.Add(3)
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		together.Done()
		together.Wait()
	}))
	t.Cleanup(server.Close)
	w := newWorker(t, func(c *Config) { c.Concurrency = 1 })
	var senders sync.WaitGroup
	for _, host := range []string{"127.0.0.1", "127.0.0.1", "localhost"} {
		senders.Go(func() {
			url := strings.Replace(server.URL, "127.0.0.1", host, 1)
			want(t, w.Deliver(t.Context(), newAttempt(url)), shaper.ResultDone, "")
		})
	}
	senders.Wait()
	if w.conns.total != 2 || len(w.conns.lists) != 2 {
		t.Errorf("%d connections of %d hosts are kept, want 1 of each", w.conns.total, len(w.conns.lists))
	}
	w.Close()
	if w.conns.total != 0 || len(w.conns.lists) != 0 {
		t.Errorf("%d connections are kept by a closed worker", w.conns.total)
	}
}

// dialPipes makes the worker connect to serve by pipes, within a bubble.
func dialPipes(w *Worker, serve func(net.Conn)) {
	w.conns.transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			defer far.Close()
			serve(far)
		}()
		wire := ctx.Value(wireKey{}).(*wire)
		wire.Conn = near
		return wire, nil
	}
}

func TestIdleConnectionsClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var open atomic.Int64
		w := newWorker(t, nil)
		dialPipes(w, func(conn net.Conn) {
			open.Add(1)
			defer open.Add(-1)
			for from := bufio.NewReader(conn); ; {
				r, err := http.ReadRequest(from)
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n")
			}
		})
		for range 3 {
			want(t, w.Deliver(t.Context(), newAttempt("http://example.com/")), shaper.ResultDone, "")
			time.Sleep(idleTimeout - time.Millisecond) //nolint:forbidigo // in a bubble: no time passes
			synctest.Wait()
			if open.Load() != 1 {
				t.Fatalf("%d connections are open just before the idle timeout, want 1", open.Load())
			}
		}
		time.Sleep(2 * time.Millisecond) //nolint:forbidigo // in a bubble: no time passes
		synctest.Wait()
		if open.Load() != 0 || w.conns.total != 0 {
			t.Errorf("%d connections are open after the idle timeout, %d are kept", open.Load(), w.conns.total)
		}
	})
}

// The timeout is that of the whole attempt, not of each step.
func TestTimeoutIsOfTheAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorker(t, nil)
		dialPipes(w, func(conn net.Conn) {
			for one := make([]byte, 1); ; time.Sleep(time.Second) { //nolint:forbidigo // in a bubble: takes a byte a second
				if _, err := conn.Read(one); err != nil {
					return
				}
			}
		})
		start := time.Now()
		want(t, w.Deliver(t.Context(), newAttempt("http://example.com/")), shaper.ResultRetry, workers.ReasonTimeout)
		if took := time.Since(start); took != 15*time.Second {
			t.Errorf("took %s", took)
		}
		time.Sleep(time.Second) //nolint:forbidigo // in a bubble: for the receiver to see the end
	})
}
