package outgoing

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
)

func newSender(t *testing.T, concurrency int) *Sender {
	t.Helper()
	s := must.Get(NewSender(Config{
		Timeout: 15 * time.Second, Policy: workers.DefaultPolicy(), Concurrency: concurrency,
		AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")},
	}))(t)
	t.Cleanup(s.Close)
	return s
}

// send sends an empty request, with a permit that stays good for longer than any test.
func send(t *testing.T, s *Sender, to string) shaper.Outcome {
	t.Helper()
	target := must.Get(ParseURL(to))(t)
	return s.Send(t.Context(), shaper.NewAttempt(time.Now(), time.Hour, nil), &Request{To: target, Header: http.Header{}})
}

func want(t *testing.T, got shaper.Outcome, result shaper.Result, reason string) {
	t.Helper()
	if got.Result != result || got.Reason != reason {
		t.Errorf("got %+v, want %s %q", got, result, reason)
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
	s := newSender(t, 1)
	var senders sync.WaitGroup
	for _, host := range []string{"127.0.0.1", "127.0.0.1", "localhost"} {
		senders.Go(func() {
			url := strings.Replace(server.URL, "127.0.0.1", host, 1)
			want(t, send(t, s, url), shaper.ResultDone, "")
		})
	}
	senders.Wait()
	if s.conns.total != 2 || len(s.conns.lists) != 2 {
		t.Errorf("%d connections of %d hosts are kept, want 1 of each", s.conns.total, len(s.conns.lists))
	}
	s.Close()
	if s.conns.total != 0 || len(s.conns.lists) != 0 {
		t.Errorf("%d connections are kept by a closed sender", s.conns.total)
	}
}

// dialPipes makes the sender connect to serve by pipes, within a bubble.
func dialPipes(s *Sender, serve func(net.Conn)) {
	s.conns.transport().DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
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

// serveNoContent answers each request of HTTP/1.
func serveNoContent(conn net.Conn) {
	for from := bufio.NewReader(conn); ; {
		r, err := http.ReadRequest(from)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n")
	}
}

func TestIdleConnectionsClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var open atomic.Int64
		s := newSender(t, 256)
		dialPipes(s, func(conn net.Conn) {
			open.Add(1)
			defer open.Add(-1)
			serveNoContent(conn)
		})
		for range 3 {
			want(t, send(t, s, "http://example.com/"), shaper.ResultDone, "")
			time.Sleep(idleTimeout - time.Millisecond) //nolint:forbidigo // in a bubble: no time passes
			synctest.Wait()
			must.Be(t, open.Load(), 1, "connections are open just before the idle timeout")
		}
		time.Sleep(2 * time.Millisecond) //nolint:forbidigo // in a bubble: no time passes
		synctest.Wait()
		if open.Load() != 0 || s.conns.total != 0 {
			t.Errorf("%d connections are open after the idle timeout, %d are kept", open.Load(), s.conns.total)
		}
	})
}

// A connection that was made for a job whose permit was void is kept for the job's next turn, which may be minutes away, and not longer.
func TestUnusedConnectionWaitsForTheNextTurn(t *testing.T) {
	t.Parallel()
	for wait, want := range map[time.Duration]int64{4 * time.Minute: 1, 6 * time.Minute: 2} {
		synctest.Test(t, func(t *testing.T) {
			var made atomic.Int64
			s := newSender(t, 256)
			dialPipes(s, func(conn net.Conn) {
				made.Add(1)
				serveNoContent(conn)
			})
			slow := s.conns.transport().DialContext
			s.conns.transport().DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
				time.Sleep(300 * time.Millisecond) //nolint:forbidigo // in a bubble: no time passes
				return slow(ctx, network, address)
			}
			target := must.Get(ParseURL("http://example.com/"))(t)
			late := s.Send(t.Context(), shaper.NewAttempt(time.Now(), 100*time.Millisecond, nil), &Request{To: target, Header: http.Header{}})
			if late.Result == shaper.ResultDone {
				t.Fatalf("%+v: the permit was void", late)
			}
			time.Sleep(wait) //nolint:forbidigo // in a bubble: no time passes
			if got := send(t, s, "http://example.com/"); got.Result != shaper.ResultDone || made.Load() != want {
				t.Errorf("after %s: %+v, %d connections, want %d", wait, got, made.Load(), want)
			}
		})
	}
}

// The timeout is that of the whole attempt, not of each step.
func TestTimeoutIsOfTheAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSender(t, 256)
		dialPipes(s, func(conn net.Conn) {
			for one := make([]byte, 1); ; time.Sleep(time.Second) { //nolint:forbidigo // in a bubble: takes a byte a second
				if _, err := conn.Read(one); err != nil {
					return
				}
			}
		})
		start := time.Now()
		want(t, send(t, s, "http://example.com/"), shaper.ResultRetry, workers.ReasonTimeout)
		must.Equal(t, time.Since(start), 15*time.Second, "took")
		time.Sleep(time.Second) //nolint:forbidigo // in a bubble: for the receiver to see the end
	})
}
