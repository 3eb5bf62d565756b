package httpapi_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

// pipes is a listener in memory.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return loopback{c}, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p pipes) Close() error   { close(p.closed); return nil }
func (p pipes) Addr() net.Addr { return loopback{}.RemoteAddr() }

// loopback is a connection from this machine.
type loopback struct{ net.Conn }

func (loopback) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// peer is a client's end of a connection. It reads the answers at once.
type peer struct {
	net.Conn
	answers chan int // their statuses; closed with the connection
}

// piped serves a producer's API in a bubble of synctest. open opens a connection and sends text on it.
func piped(t *testing.T, cfg httpapi.ProducerConfig) (open func(text string) peer) {
	t.Helper()
	connect := pipedUnread(t, cfg)
	return func(text string) peer {
		it := peer{connect(), make(chan int, 10)}
		go func() {
			defer close(it.answers)
			for from := bufio.NewReader(it); ; {
				response, err := http.ReadResponse(from, nil)
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
				it.answers <- response.StatusCode
			}
		}()
		_, _ = io.WriteString(it, text)
		return it
	}
}

// pipedUnread is piped with connections on which nobody reads.
func pipedUnread(t *testing.T, cfg httpapi.ProducerConfig) (connect func() net.Conn) {
	t.Helper()
	p := pipes{make(chan net.Conn), make(chan struct{})}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- httpapi.Serve(ctx, p, httpapi.NewProducer(cfg), time.Minute, nil) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return func() net.Conn {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { _ = ours.Close() })
		p.conns <- theirs
		return ours
	}
}

const livez = "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"

// post is the header of a request with a body of a length.
func post(path string, length int) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", path, length)
}

// Connections without a request, whatever they have sent, give their places to new ones at once.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	for name, send := range map[string]string{"silent": "", "half a header": strings.TrimSuffix(livez, "\r\n"), "served": livez} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				open := piped(t, httpapi.ProducerConfig{Jobs: &fake{bucket: buckets(t)[0]}, MaxConnections: 2})
				var first peer
				for n := range 100 {
					it := open(send)
					if send == livez && <-it.answers != http.StatusOK {
						t.Fatalf("connection %d is not served", n)
					}
					if n == 0 {
						first = it
					}
					synctest.Wait()
				}
				must.Equal(t, <-open(livez).answers, http.StatusOK, "the last one is not served")
				if _, isOpen := <-first.answers; isOpen {
					t.Error("the first one has an answer")
				}
				must.Equal(t, time.Since(began), 0, "it took")
			})
		})
	}
}

// A connection without a request is kept for longer than the 75 s for which nginx keeps it: a request that nginx sends at the end of that time
// finds it open. With idle_timeout it is kept for that long.
func TestIdleTimeout(t *testing.T) {
	t.Parallel()
	for timeout, kept := range map[time.Duration]time.Duration{0: 90 * time.Second, 10 * time.Minute: 10 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			open := piped(t, httpapi.ProducerConfig{Jobs: &fake{bucket: buckets(t)[0]}, IdleTimeout: timeout})
			it := open(livez)
			for range 3 {
				must.Be(t, (<-it.answers), http.StatusOK, "idle_timeout %s", timeout)
				time.Sleep(max(75*time.Second, timeout-time.Second)) //nolint:forbidigo // in a bubble: no time passes
				_, _ = io.WriteString(it, livez)
			}
			<-it.answers
			began := time.Now()
			if _, isOpen := <-it.answers; isOpen || time.Since(began) != kept {
				t.Errorf("idle_timeout %s: closed after %s, want %s", timeout, time.Since(began), kept)
			}
		})
	}
}

// A connection stays while its request has a place. One whose request was refused gives way to a new one, whatever of its body is to come.
func TestMaxConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		f := &fake{bucket: buckets(t)[0], enqueue: func(context.Context) ([]shaper.Receipt, error) {
			<-release
			return []shaper.Receipt{{ID: "a", Bucket: "roomy", State: shaper.StateQueued}}, nil
		}}
		open := piped(t, httpapi.ProducerConfig{Jobs: f, MaxConnections: 2})
		began := time.Now()
		first := open(post(jobs, len(job(""))) + job(""))
		var unread []peer
		for range 65 {
			unread = append(unread, open(post("/nothing", 100_000)))
		}
		synctest.Wait()
		must.Equal(t, <-open(livez).answers, http.StatusOK, "the last one is not served")
		for _, it := range unread {
			if got := <-it.answers; got != http.StatusNotFound {
				t.Error(got)
			}
		}
		must.Equal(t, time.Since(began), 0, "it took")
		close(release)
		if got := <-first.answers; got != http.StatusAccepted {
			t.Error(got)
		}
	})
}

// Clients that send requests ahead and read no answer keep no other one out: not with probes, and not with requests that get no place.
func TestUnreadAnswers(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/livez", "/v1/x"} {
		synctest.Test(t, func(t *testing.T) {
			connect := pipedUnread(t, httpapi.ProducerConfig{Jobs: &fake{bucket: buckets(t)[0]}, MaxConnections: 2})
			began := time.Now()
			for range 100 {
				_, _ = io.WriteString(connect(), strings.Repeat(strings.Replace(livez, "/livez", path, 1), 20))
				synctest.Wait()
			}
			last := connect()
			_, _ = io.WriteString(last, livez)
			response, err := http.ReadResponse(bufio.NewReader(last), nil)
			if err != nil {
				t.Fatalf("%s: the last one is not served: %v", path, err)
			}
			if _ = response.Body.Close(); response.StatusCode != http.StatusOK {
				t.Errorf("%s: the last one is answered %d", path, response.StatusCode)
			}
			must.Equal(t, time.Since(began), 0, "%s: it took", path)
		})
	}
}

// The answer to a request without a place is the last one of its connection: of no key, of a wrong one, of no route, and of no room.
func TestLastAnswers(t *testing.T) {
	t.Parallel()
	crowd, start, end := crowded(t, 2)
	defer end()
	start("a")
	keyed := []string{"Authorization", "Bearer a"}
	for name, test := range map[string]struct {
		method, path string
		headers      []string
		status       int
		last         bool
	}{
		"no key":    {"GET", jobs + "/x", nil, 401, true},
		"wrong key": {"GET", jobs + "/x", []string{"Authorization", "Bearer nobody"}, 401, true},
		"no right":  {"GET", "/metrics", keyed, 403, true},
		"no route":  {"GET", "/v1/x", nil, 404, true},
		"no method": {"PUT", jobs, keyed, 405, true},
		"no room":   {"POST", jobs, keyed, 503, true},
		"a place":   {"GET", "/openapi.yaml", nil, 200, false},
		"a probe":   {"GET", "/livez", nil, 200, false},
	} {
		r := must.Get(http.NewRequestWithContext(t.Context(), test.method, crowd.http.URL+test.path, http.NoBody))(t)
		for i := 0; i < len(test.headers); i += 2 {
			r.Header.Set(test.headers[i], test.headers[i+1])
		}
		response, err := crowd.http.Client().Do(r)
		must.OK(t, err)
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if response.StatusCode != test.status || response.Close != test.last {
			t.Errorf("%s: %d, last %v", name, response.StatusCode, response.Close)
		}
	}
}

// A body has to arrive at a least rate, whatever its length.
func TestSlowBodies(t *testing.T) {
	t.Parallel()
	const part = 40 << 10
	for name, test := range map[string]struct {
		length, part int
		every        time.Duration
		status       int
		took         time.Duration
	}{
		"nothing arrives":        {part, 0, time.Second, http.StatusRequestTimeout, 5 * time.Second},
		"a byte a second":        {part, 1, time.Second, http.StatusRequestTimeout, 5 * time.Second},
		"too slow after a while": {10 * part, part / 2, 4 * time.Second, http.StatusRequestTimeout, 5 * time.Second},
		"in time":                {2*part + 1000, part, 4 * time.Second, http.StatusAccepted, 12 * time.Second},
		"too long in all":        {100 * part, part, 4 * time.Second, http.StatusRequestTimeout, 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &fake{bucket: buckets(t)[0], enqueue: func(context.Context) ([]shaper.Receipt, error) {
					return []shaper.Receipt{{ID: "a", Bucket: "roomy", State: shaper.StateQueued}}, nil
				}}
				f.bucket.MaxPayload = 16 << 20
				began := time.Now()
				it := piped(t, httpapi.ProducerConfig{Jobs: f})(post(jobs, test.length))
				sent := make(chan struct{})
				go func() {
					defer close(sent)
					body := strings.Repeat(" ", test.length-len(job(""))) + job("")
					for err := error(nil); err == nil && body != ""; {
						<-time.After(test.every)
						n := min(test.part, len(body))
						_, err = io.WriteString(it, body[:n])
						body = body[n:]
					}
				}()
				if got, took := <-it.answers, time.Since(began); got != test.status || took != test.took {
					t.Errorf("answered %d after %s", got, took)
				}
				<-sent
			})
		})
	}
}
