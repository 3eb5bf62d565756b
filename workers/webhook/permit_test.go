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
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
)

// lateAttempt has a permit that is void.
func lateAttempt(url string) *shaper.Attempt {
	return withJob(shaper.NewAttempt(time.Now().Add(-time.Hour), time.Second, nil), url)
}

// listen serves each connection by serve, and returns the URL.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				serve(conn)
			})
		}
	})
	t.Cleanup(serving.Wait)
	t.Cleanup(func() { listener.Close() })
	return "http://" + listener.Addr().String() + "/"
}

func TestLatePermitSendsNothing(t *testing.T) {
	t.Parallel()
	received := make(chan []byte, 1)
	url := listen(t, func(conn net.Conn) {
		all, _ := io.ReadAll(conn)
		received <- all
	})
	w := newWorker(t, nil)
	attempt := lateAttempt(url)
	attempt.Headers = map[string][]string{"X-Large": {strings.Repeat("a", shaper.MaxHeaderBytes-10)}} // more than net/http buffers
	attempt.Payload = make([]byte, 1<<20)
	want(t, w.Deliver(t.Context(), attempt), shaper.ResultReturned, workers.ReasonLate)
	w.Close() // ends the connection, and with it the reading
	must.Equal(t, len(<-received), 0, "the receiver got bytes")
}

// A receiver that is slow to connect would never get anything if the connection
// was thrown away with the slot.
func TestLatePermitKeepsTheConnection(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		var conns, requests atomic.Int64
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			must.Equal(t, http2, (r.ProtoMajor == 2), "HTTP/%d", r.ProtoMajor)
		}))
		server.EnableHTTP2 = http2
		server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				conns.Add(1)
			}
		}
		server.StartTLS()
		t.Cleanup(server.Close)
		w := newWorker(t, nil)
		trust(w, server)

		want(t, w.Deliver(t.Context(), lateAttempt(server.URL)), shaper.ResultReturned, workers.ReasonLate)
		must.Equal(t, requests.Load(), 0, "a late permit sent requests")
		want(t, w.Deliver(t.Context(), newAttempt(server.URL)), shaper.ResultDone, "")
		want(t, w.Deliver(t.Context(), lateAttempt(server.URL)), shaper.ResultReturned, workers.ReasonLate)
		want(t, w.Deliver(t.Context(), newAttempt(server.URL)), shaper.ResultDone, "")
		if requests.Load() != 2 || conns.Load() != 1 {
			t.Errorf("http2 %t: %d requests over %d connections, want 2 over 1", http2, requests.Load(), conns.Load())
		}
	}
}

// net/http sends a request again, unasked, when a kept connection dies and the
// request looks idempotent. One permit is one request.
func TestDyingConnectionIsOneRequest(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	url := listen(t, func(conn net.Conn) {
		from := bufio.NewReader(conn)
		for {
			r, err := http.ReadRequest(from)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			if requests.Add(1) == 2 {
				return // the second request is read in full and never answered
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	})
	w := newWorker(t, nil)
	deliver := func() shaper.Outcome {
		attempt := newAttempt(url)
		attempt.Headers = map[string][]string{"Idempotency-Key": {"1"}, "X-Idempotency-Key": {"1"}}
		return w.Deliver(t.Context(), attempt)
	}
	want(t, deliver(), shaper.ResultDone, "")
	want(t, deliver(), shaper.ResultRetry, workers.ReasonConnection)
	must.Equal(t, requests.Load(), 2, "2 permits were requests")
	want(t, deliver(), shaper.ResultDone, "")
}

// A kept connection that turns out to be dead before anything was written costs
// no attempt; a receiver that hangs up on new ones does.
func TestStaleConnection(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		var requests atomic.Int64
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
		server.EnableHTTP2 = http2
		server.StartTLS()
		t.Cleanup(server.Close)
		w := newWorker(t, nil)
		trust(w, server)
		hangUp := lastConnection(w)
		want(t, w.Deliver(t.Context(), newAttempt(server.URL)), shaper.ResultDone, "")

		dies := withJob(shaper.NewAttempt(time.Now(), time.Hour, func(time.Duration) { hangUp() }), server.URL)
		want(t, w.Deliver(t.Context(), dies), shaper.ResultReturned, workers.ReasonStaleConnection)
		want(t, w.Deliver(t.Context(), newAttempt(server.URL)), shaper.ResultDone, "")
		must.Equal(t, requests.Load(), 2, "http2 %t: requests", http2)
	}
	hangsUp := listen(t, func(net.Conn) {})
	want(t, newWorker(t, nil).Deliver(t.Context(), newAttempt(hangsUp)), shaper.ResultRetry, workers.ReasonConnection)
}

func TestShutdown(t *testing.T) {
	t.Parallel()
	arrived, finish := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-finish
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(finish) })
	w := newWorker(t, nil)

	stopped, stop := context.WithCancel(t.Context())
	go func() { <-arrived; stop() }()
	want(t, w.Deliver(stopped, newAttempt(server.URL)), shaper.ResultRetry, workers.ReasonInterrupted)
	want(t, w.Deliver(stopped, newAttempt(server.URL)), shaper.ResultReturned, workers.ReasonShutdown)
}
