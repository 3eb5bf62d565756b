package test

import (
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/faultproxy"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// nginxKeepalive keeps connections to the producer for 2 s.
const nginxKeepalive = `
daemon off; master_process off; pid nginx.pid; error_log stderr error;
events { worker_connections 1024; }
http {
  access_log off;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  upstream producer { server %s; keepalive 200; keepalive_timeout 2s; keepalive_requests 100000; }
  server {
    listen %s;
    location / { proxy_pass http://producer; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $http_host; }
  }
}
`

// TestIdleTimeoutBehindNginx: nginx, 100 ms away, keeps connections to the producer for 2 s. A producer that keeps them for longer cuts off no request. One
// that closes them earlier does so while requests are on their way, and nginx answers 502 to a POST.
func TestIdleTimeoutBehindNginx(t *testing.T) {
	if _, err := exec.LookPath("nginx"); err != nil {
		harness.Skip(t, "this test needs nginx (apt-get install nginx)")
	}
	const kept = 2 * time.Second // by nginx
	for name, c := range map[string]struct {
		idle time.Duration // of the producer
		cuts bool
		step int // ms
	}{"below": {idle: time.Second, cuts: true, step: 8}, "above": {idle: 3 * time.Second, step: 60}} {
		t.Run(name, func(t *testing.T) {
			harness.BesideOthers(t)
			producer := harness.Producers(t, redistest.Start(t).URL(), 1,
				fmt.Sprintf("idle_timeout = %q\n[[buckets]]\nname = \"a\"\nrate = \"1/s\"\nwebhook.url = \"http://127.0.0.1:1\"\n", c.idle))[0]
			proxy, err := faultproxy.New(strings.TrimPrefix(producer, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = proxy.Close() })
			proxy.SetDelay(100 * time.Millisecond)
			gateway := redistest.FreeAddr(t)
			runNginx(t, fmt.Sprintf(nginxKeepalive, proxy.Addr(), gateway), "http://"+gateway+"/readyz")

			// All connections are without a request for the same time, which ends around the one at which they are closed.
			clients := make([]*http.Client, 30)
			for i := range clients {
				clients[i] = &http.Client{Transport: &http.Transport{}}
				t.Cleanup(clients[i].CloseIdleConnections)
			}
			sent, cut := 0, atomic.Int64{}
			for early := -120; early <= 60 && (!c.cuts || cut.Load() == 0); early += c.step {
				var running sync.WaitGroup
				for _, client := range clients {
					running.Go(func() {
						switch status := postJob(t, client, "http://"+gateway+"/v1/buckets/a/jobs"); status {
						case http.StatusAccepted:
						case http.StatusBadGateway:
							cut.Add(1)
						default:
							t.Errorf("status %d", status)
						}
					})
				}
				running.Wait()
				sent += len(clients)
				<-time.After(min(c.idle, kept) + time.Duration(early)*time.Millisecond)
			}
			t.Logf("idle_timeout %s, nginx keeps connections for %s: %d of %d requests cut off", c.idle, kept, cut.Load(), sent)
			if c.cuts != (cut.Load() > 0) {
				t.Errorf("%d of %d requests cut off", cut.Load(), sent)
			}
		})
	}
}

func postJob(t *testing.T, client *http.Client, url string) (status int) {
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(`{"payload":{}}`))
	if err != nil {
		t.Error(err)
		return 0
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}
