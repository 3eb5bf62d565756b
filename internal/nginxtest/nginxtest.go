// Package nginxtest runs an nginx as a receiver over HTTP/2 for tests.
package nginxtest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
)

const config = `
daemon off; master_process off; pid %[1]s/pid; error_log %[1]s/error.log;
events { worker_connections 1024; }
http {
  log_format ids '$http_webhook_id$arg_id $status $server_protocol $connection';
  access_log %[1]s/access.log ids;
  client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fastcgi; uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
  server {
    listen %[2]s ssl http2;
    ssl_certificate %[3]s; ssl_certificate_key %[4]s;
    %[5]s
  }
}
`

// patience is how long a test waits for nginx.
const patience = 10 * time.Second

// Server is an nginx that runs until the test ends.
type Server struct {
	URL string // https://127.0.0.1:port
	dir string
}

// Request is one request in the access log.
type Request struct {
	ID         string // the header webhook-id, or the argument id
	Status     int
	Protocol   string // HTTP/2.0
	Connection string // its number
}

// Start runs an nginx with the certificate of files and the directives of its server block. Without nginx it skips the test, and fails it in CI.
func Start(t *testing.T, files redistest.Certificates, directives string) *Server {
	t.Helper()
	program, err := exec.LookPath("nginx")
	if err != nil {
		program, err = exec.LookPath("/usr/sbin/nginx")
	}
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("this test needs nginx")
		}
		t.Skip("this test needs nginx (apt-get install nginx)")
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	listener.Close()
	s := &Server{URL: "https://" + addr, dir: t.TempDir()}
	path := filepath.Join(s.dir, "nginx.conf")
	if err := os.WriteFile(path, fmt.Appendf(nil, config, s.dir, addr, files.Cert, files.Key, directives), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "-p", s.dir, "-e", filepath.Join(s.dir, "error.log"), "-c", path) //nolint:gosec // the program is nginx
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // the context of the test has ended it
	for until := time.Now().Add(patience); ; {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
		if err == nil {
			conn.Close()
			return s
		}
		if time.Now().After(until) {
			text, _ := os.ReadFile(filepath.Join(s.dir, "error.log"))
			t.Fatalf("nginx does not listen: %s", text)
		}
	}
}

// Requests returns the requests of the access log, once it has at least atLeast: nginx logs a request after its response.
func (s *Server) Requests(t *testing.T, atLeast int) (requests []Request) {
	t.Helper()
	for until := time.Now().Add(patience); len(requests) < atLeast && time.Now().Before(until); {
		requests = nil
		text, err := os.ReadFile(filepath.Join(s.dir, "access.log"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			var r Request
			if _, err := fmt.Sscan(line, &r.ID, &r.Status, &r.Protocol, &r.Connection); err == nil {
				r.ID = strings.Trim(r.ID, "-") // a missing id is logged as -
				requests = append(requests, r)
			}
		}
	}
	return requests
}
