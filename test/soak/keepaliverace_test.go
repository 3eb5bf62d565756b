//go:build soak

package soak

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// nodeServer is an HTTP server of Node that closes a connection which had no request for a second.
const nodeServer = `
const server = require('http').createServer((request, response) => { request.resume(); request.on('end', () => response.end('ok')) })
server.keepAliveTimeout = 1000
server.keepAliveTimeoutBuffer = 0
server.listen(Number(process.argv[2]), '127.0.0.1')
`

// TestKeepAliveRace: each of some receivers gets a request every second, which is when Node closes its connection. Hardly any attempt fails, no request
// comes twice, and no breaker opens.
func TestKeepAliveRace(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		harness.Skip(t, "this test needs node")
	}
	const receivers, each = 30, 60
	script := filepath.Join(t.TempDir(), "server.js")
	if err := os.WriteFile(script, []byte(nodeServer), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, redistest.Start(t), harness.Plan{Rate: 2 * receivers, Dispatchers: 1, Bucket: "[buckets.flow]\nkey = \"job\"\nrate = \"1/s\""})
	var lines []string
	addresses := make([]string, receivers)
	for i := range addresses {
		addresses[i] = redistest.FreeAddr(t)
		server := exec.CommandContext(t.Context(), node, script, addresses[i][len("127.0.0.1:"):])
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = server.Wait() })
		harness.Await(t, 10*time.Second, "Node listens", func() bool {
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addresses[i])
			if err != nil {
				return false
			}
			conn.Close()
			return true
		})
	}
	for n := range each {
		for i, address := range addresses {
			lines = append(lines, fmt.Sprintf(`{"id":"race-%d-%d","payload":{},"flow":"f%d","url":"http://%s"}`, i, n, i, address))
		}
	}
	s.PostLines(lines)
	open := 0.
	harness.Await(t, 3*each*time.Second, "all jobs are done", func() bool {
		open = max(open, s.Metric(0, "tundish_breakers", `bucket="webhooks"`))
		return s.Unfinished() == 0
	})
	failed := s.Metric(0, "tundish_attempts_total", `reason="connection"`)
	stale := s.Metric(0, "tundish_permits_returned_total", `reason="stale_connection"`)
	t.Logf("%d jobs: %.0f attempts failed as connection, %.0f returned as stale_connection", len(lines), failed, stale)
	if failed > float64(len(lines))/100 || open > 0 {
		t.Errorf("%.0f of %d attempts failed, %.0f breakers open", failed, len(lines), open)
	}
}
