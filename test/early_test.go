package test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// TestEarlyResponse: a receiver answers 413 before it has read the body, and closes the connection once it has read the rest. The attempt ends as
// http_413, and not as a connection that failed. A receiver that closes it at once resets it, which may destroy the response on its way.
func TestEarlyResponse(t *testing.T) {
	const jobs, size = 30, 900 << 10
	for name, c := range map[string]struct {
		reset bool
		delay time.Duration
		least int // attempts that end as http_413
	}{"reset": {reset: true, least: jobs / 2}, "reset, late": {true, 20 * time.Millisecond, jobs / 2}, "lingering": {least: jobs}, "lingering, late": {false, 20 * time.Millisecond, jobs}} {
		t.Run(name, func(t *testing.T) {
			harness.BesideOthers(t)
			listener, err := listenAt("127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { listener.Close() })
			go refuseBodies(listener, c.reset, c.delay)
			address := listener.Addr().String()
			s := start(t, redistest.Start(t), harness.Plan{Rate: 20, Dispatchers: 1, Retry: "max_attempts = 1", Bucket: `max_payload = "1MiB"`})
			payload, lines := strings.Repeat("x", size), make([]string, 0, 1)
			for i := range jobs {
				lines = append(lines[:0], fmt.Sprintf(`{"id":"early-%d","payload":%q,"url":"http://%s"}`, i, payload, address))
				s.PostLines(lines)
			}
			harness.Await(t, 20*time.Second, "all jobs have ended", func() bool {
				return s.Inspector.ZCard(t.Context(), s.Key("dead")).Val() == jobs
			})
			// The metrics of an attempt follow its end.
			refused, lost := 0., 0.
			harness.Await(t, 10*time.Second, "all attempts are counted", func() bool {
				refused, lost = s.Metric(0, "tundish_attempts_total", `reason="http_413"`), s.Metric(0, "tundish_attempts_total", `reason="connection"`)
				return refused+lost == jobs
			})
			t.Logf("%.0f of %d attempts ended as http_413, %.0f as connection", refused, jobs, lost)
			if refused < float64(c.least) {
				t.Errorf("%.0f of %d attempts ended as http_413, want %d", refused, jobs, c.least)
			}
		})
	}
}

// refuseBodies answers each request with 413 a while after its head. It closes the connection at once, or after the rest of the request.
func refuseBodies(listener net.Listener, atOnce bool, delay time.Duration) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			in := bufio.NewReader(conn)
			if _, err := http.ReadRequest(in); err != nil {
				return
			}
			<-time.After(delay)
			_, _ = io.WriteString(conn, "HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
			if !atOnce {
				_ = conn.(*net.TCPConn).CloseWrite()
				_, _ = io.Copy(io.Discard, in)
			}
		}()
	}
}
