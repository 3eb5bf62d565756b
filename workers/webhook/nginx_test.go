package webhook

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
	"github.com/tundish-io/tundish/workers/outgoing"
)

// nginxConfig retires each connection of HTTP/2 after 50 requests, by a GOAWAY.
const nginxConfig = `
daemon off; master_process off; pid %[1]s/pid; error_log %[1]s/error.log;
events { worker_connections 1024; }
http {
  log_format ids '$http_webhook_id $status $server_protocol $connection';
  access_log %[1]s/access.log ids;
  client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fastcgi; uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
  server {
    listen %[2]s ssl http2;
    ssl_certificate %[3]s; ssl_certificate_key %[4]s;
    keepalive_requests 50;
    location / { return 204; }
  }
}
`

// nginx runs an nginx, and returns its URL and its access log.
func nginx(t *testing.T, files redistest.Certificates) (url, log string) {
	t.Helper()
	program, err := exec.LookPath("nginx")
	if err != nil {
		if program = "/usr/sbin/nginx"; !isFile(program) {
			if os.Getenv("CI") != "" {
				t.Fatal("this test needs nginx")
			}
			t.Skip("this test needs nginx (apt-get install nginx)")
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	listener.Close()
	dir := t.TempDir()
	config := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(config, fmt.Appendf(nil, nginxConfig, dir, addr, files.Cert, files.Key), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-p", dir, "-e", filepath.Join(dir, "error.log"), "-c", config)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	for until := time.Now().Add(time.Minute); ; {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
			return "https://" + addr, filepath.Join(dir, "access.log")
		}
		if time.Now().After(until) {
			text, _ := os.ReadFile(filepath.Join(dir, "error.log"))
			t.Fatalf("nginx does not listen: %s", text)
		}
	}
}

func isFile(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// nginx ends a connection of HTTP/2 after keepalive_requests by a GOAWAY. What it has not processed by then costs no attempt, and no job
// arrives twice.
func TestNginxRetiresConnections(t *testing.T) {
	t.Parallel()
	files := redistest.NewCertificates(t)
	url, log := nginx(t, files)
	const jobs, senders = 1500, 16
	w := newWorker(t, func(c *Config) { c.TLS, c.Concurrency = outgoing.TLS{CA: files.CA}, senders })
	var next, unprocessed atomic.Int64
	var sending sync.WaitGroup
	for range senders {
		sending.Go(func() {
			for n := next.Add(1); n <= jobs; n = next.Add(1) {
				for returns := 0; ; returns++ { // as a dispatcher does, at the next slot
					attempt := newAttempt(url)
					attempt.ID = fmt.Sprint("job-", n)
					got := w.Deliver(t.Context(), attempt)
					if got.Result != shaper.ResultReturned || returns == 5 {
						want(t, got, shaper.ResultDone, "")
						break
					}
					if got.Reason == workers.ReasonUnprocessed {
						unprocessed.Add(1)
					}
				}
			}
		})
	}
	sending.Wait()
	w.Close()
	arrived, conns := map[string]int{}, map[string]int{}
	for until := time.Now().Add(time.Minute); len(arrived) < jobs && time.Now().Before(until); { // nginx logs a request after its response
		clear(arrived)
		clear(conns)
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			var id, protocol, conn string
			var status int
			if _, err := fmt.Sscan(line, &id, &status, &protocol, &conn); err == nil && status == http.StatusNoContent && protocol == "HTTP/2.0" {
				arrived[id]++
				conns[conn]++
			}
		}
	}
	for n := range jobs {
		if id := fmt.Sprint("job-", n+1); arrived[id] != 1 {
			t.Errorf("%s arrived %d times", id, arrived[id])
		}
	}
	if len(conns) < jobs/50 {
		t.Errorf("%d connections: nginx should have retired each after 50 requests", len(conns))
	}
	t.Logf("%d connections, %d requests were not processed and returned", len(conns), unprocessed.Load())
}
