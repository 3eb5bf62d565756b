package webhook

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tundish-io/tundish/shaper"
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
