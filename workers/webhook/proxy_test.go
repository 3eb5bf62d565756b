package webhook

import (
	"cmp"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
)

// proxy is a small forward proxy: CONNECT, and requests in absolute form. It leads every host to one receiver.
type proxy struct {
	*httptest.Server
	to     string // host:port of the receiver
	status int    // of its answer to CONNECT; 0 for 200

	mu    sync.Mutex
	asked []string // "METHOD target authorization"
	conns []net.Conn
}

func newProxy(t *testing.T, receiver string) *proxy {
	t.Helper()
	u := must.Get(url.Parse(receiver))(t)
	p := &proxy{to: u.Host}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	t.Cleanup(p.cut)
	return p
}

// cut closes the tunnels.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range p.conns {
		conn.Close()
	}
}

func (p *proxy) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	user, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(r.Header.Get("Proxy-Authorization"), "Basic "))
	p.mu.Lock()
	p.asked = append(p.asked, r.Method+" "+r.RequestURI+" "+string(user))
	p.mu.Unlock()
	if r.Method == http.MethodConnect {
		p.tunnel(rw)
		return
	}
	r.Header.Del("Proxy-Authorization")
	r.RequestURI, r.URL.Host = "", p.to
	forward := &http.Transport{DisableKeepAlives: true}
	resp, err := forward.RoundTrip(r)
	if err != nil {
		rw.WriteHeader(http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	rw.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(rw, resp.Body)
}

func (p *proxy) tunnel(rw http.ResponseWriter) {
	if p.status != 0 {
		http.Error(rw, "no", p.status)
		return
	}
	far, err := net.Dial("tcp", p.to)
	if err != nil {
		rw.WriteHeader(http.StatusBadGateway)
		return
	}
	defer far.Close()
	near, buffered, err := rw.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer near.Close()
	p.mu.Lock()
	p.conns = append(p.conns, near)
	p.mu.Unlock()
	_, _ = io.WriteString(near, "HTTP/1.1 200 Connection established\r\n\r\n")
	var copying sync.WaitGroup
	copying.Go(func() {
		defer far.Close()
		_, _ = io.Copy(far, buffered)
	})
	_, _ = io.Copy(near, far)
	near.Close()
	copying.Wait()
}

// requests are those that the proxy got so far.
func (p *proxy) requests() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.asked, ", ")
}

// through has a worker use a proxy, with a user and a password.
func through(p *proxy) func(*Config) {
	return func(c *Config) {
		c.EgressProxy = strings.Replace(p.URL, "http://", "http://us%40er:hunter2@", 1)
	}
}

// dying is an attempt during which the worker's connection closes, just before the first byte.
func dying(hangUp func(), to string) *shaper.Attempt {
	return withJob(shaper.NewAttempt(time.Now(), time.Hour, func(time.Duration) { hangUp() }), to)
}

// Plain requests go to the proxy in absolute form, one for each permit. The receiver sees no credentials of the proxy.
func TestProxy(t *testing.T) {
	t.Parallel()
	receiver, last := received(t)
	p := newProxy(t, receiver.URL)
	w := newWorker(t, through(p))
	hangUp := lastConnection(w)
	for range 2 {
		want(t, w.Deliver(t.Context(), newAttempt("http://receiver.example/in?a=b")), shaper.ResultDone, "")
		if r := last(); r.Host != "receiver.example" || r.RequestURI != "/in?a=b" || r.Header.Get("Proxy-Authorization") != "" {
			t.Errorf("the receiver got %s for %s with %v", r.RequestURI, r.Host, r.Header)
		}
	}
	want(t, w.Deliver(t.Context(), lateAttempt("http://receiver.example/")), shaper.ResultReturned, workers.ReasonLate)
	want(t, w.Deliver(t.Context(), dying(hangUp, "http://receiver.example/")), shaper.ResultReturned, workers.ReasonStaleConnection)
	const one = "POST http://receiver.example/in?a=b us@er:hunter2"
	must.Equal(t, p.requests(), one+", "+one, "the proxy got")
}

// TLS goes through a tunnel, so the proxy sees neither request nor secrets. A connection through a tunnel is kept as any other,
// and so is the proof that nothing was written.
func TestTunnel(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		requests := make(chan *http.Request, 10)
		receiver := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { requests <- r }))
		receiver.EnableHTTP2 = http2
		receiver.StartTLS()
		t.Cleanup(receiver.Close)
		p := newProxy(t, receiver.URL)
		w := newWorker(t, through(p))
		trust(w, receiver)
		hangUp := lastConnection(w)
		const to = "https://example.com/in" // a name of the test server's certificate

		want(t, w.Deliver(t.Context(), lateAttempt(to)), shaper.ResultReturned, workers.ReasonLate)
		want(t, w.Deliver(t.Context(), newAttempt(to)), shaper.ResultDone, "")
		want(t, w.Deliver(t.Context(), newAttempt(to)), shaper.ResultDone, "")
		must.Equal(t, p.requests(), "CONNECT example.com:443 us@er:hunter2", "http2 %t: the proxy got", http2)
		want(t, w.Deliver(t.Context(), dying(hangUp, to)), shaper.ResultReturned, workers.ReasonStaleConnection)
		if r := <-requests; r.Host != "example.com" || http2 != (r.ProtoMajor == 2) || r.Header.Get("Proxy-Authorization") != "" || len(requests) != 1 {
			t.Errorf("the receiver got %s %s with %v, and %d more", r.Host, r.Proto, r.Header, len(requests))
		}
	}
}

// A proxy that refuses, is not there or hangs costs an attempt, sends nothing, and shows no password.
func TestProxyFails(t *testing.T) {
	t.Parallel()
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("was reached") }))
	t.Cleanup(receiver.Close)
	refuses := newProxy(t, receiver.URL)
	refuses.status = http.StatusProxyAuthRequired
	hangs := listen(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	endless := listen(t, func(conn net.Conn) {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
		for _, err := io.WriteString(conn, "X: y\r\n"); err == nil; {
			_, err = io.WriteString(conn, "X: y\r\n")
		}
	})
	for name, tt := range map[string]struct{ proxy, to, reason, detail string }{
		"refuses":      {strings.Replace(refuses.URL, "//", "//u:hunter2@", 1), "https", workers.ReasonLocalProxy, "the proxy answers 407 Proxy Authentication Required"},
		"is not there": {"http://u:hunter2@127.0.0.1:1", "https", workers.ReasonLocalProxy, "127.0.0.1:1"},
		"plain":        {"http://u:hunter2@127.0.0.1:1", "http", workers.ReasonLocalProxy, "127.0.0.1:1"},
		"hangs":        {hangs, "https", workers.ReasonTimeout, "ask the egress proxy for a tunnel"},
		"never ends":   {endless, "https", workers.ReasonConnection, "ask the egress proxy for a tunnel"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorker(t, func(c *Config) {
				if c.EgressProxy = tt.proxy; name == "hangs" {
					c.Timeout = 50 * time.Millisecond
				}
			})
			departed := false
			attempt := withJob(shaper.NewAttempt(time.Now(), time.Hour, func(time.Duration) { departed = true }), tt.to+"://receiver.example/")
			outcome := w.Deliver(t.Context(), attempt)
			result := shaper.ResultRetry
			if tt.reason == workers.ReasonLocalProxy { // the proxy is ours
				result = shaper.ResultReturned
			}
			want(t, outcome, result, tt.reason)
			if departed || !strings.Contains(cmp.Or(outcome.Private, outcome.Detail), tt.detail) || strings.Contains(outcome.Detail, "hunter2") {
				t.Errorf("departed: %t, detail %q", departed, outcome.Detail)
			}
		})
	}
}

// The guard sees the proxy's address. A proxy that it refuses is a fault of the settings and keeps the jobs. An
// address in a job's URL is refused as without a proxy.
func TestGuardAndProxy(t *testing.T) {
	t.Parallel()
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("was reached") }))
	t.Cleanup(receiver.Close)
	p := newProxy(t, receiver.URL)
	byName := strings.Replace(p.URL, "127.0.0.1", "localhost", 1)
	w := newWorker(t, func(c *Config) { c.AllowNetworks, c.EgressProxy = nil, byName })
	for _, to := range []string{"http://receiver.example/", "https://receiver.example/"} {
		outcome := w.Deliver(t.Context(), newAttempt(to))
		want(t, outcome, shaper.ResultReturned, workers.ReasonLocalProxy)
		if !strings.Contains(outcome.Detail, "the egress proxy is not called") {
			t.Errorf("%s: %+v", to, outcome)
		}
	}
	w = newWorker(t, through(p))
	for _, to := range []string{"http://10.0.0.1/", "https://169.254.169.254/"} {
		want(t, w.Deliver(t.Context(), newAttempt(to)), shaper.ResultDead, workers.ReasonBlockedAddress)
	}
	must.Equal(t, p.requests(), "", "the proxy got")
}
