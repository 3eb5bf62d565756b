package httpapi_test

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tundish-io/tundish/internal/nginxtest"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/workers/llm"
)

// An API that retires each connection after 50 requests, by a GOAWAY: no client notices, and no call is made twice.
func TestRouteClientsNoticeNoGoAway(t *testing.T) {
	t.Parallel()
	files := redistest.NewCertificates(t)
	api := nginxtest.Start(t, files, `keepalive_requests 50; default_type application/json;
		location / { return 200 '{"choices":[{"message":{"content":"Hi"}}],"usage":{"prompt_tokens":3,"completion_tokens":1}}'; }`)
	d := newRouteRigOf(t, func(bucket string, c *llm.Config) {
		if bucket == "quick" {
			c.HTTP.BaseURL, c.HTTP.TLS.CA = api.URL, files.CA
		}
	})
	const calls, clients = 500, 16
	var next atomic.Int64
	var running sync.WaitGroup
	for range clients {
		running.Go(func() {
			for n := next.Add(1); n <= calls; n = next.Add(1) {
				if a := d.do("POST", fmt.Sprintf("/v1/proxy/openai/v1/chat/completions?id=call-%d", n), chatOf("gpt-5")); a.status != http.StatusOK {
					t.Errorf("call %d: %d %s", n, a.status, a.text)
				}
			}
		})
	}
	running.Wait()
	if t.Failed() {
		return // nginx did not get them all
	}
	arrived, conns := map[string]int{}, map[string]bool{}
	for _, r := range api.Requests(t, calls) {
		arrived[r.ID]++
		conns[r.Connection] = true
	}
	for n := range calls {
		if id := fmt.Sprint("call-", n+1); arrived[id] != 1 {
			t.Errorf("%s arrived %d times", id, arrived[id])
		}
	}
	if len(conns) < calls/50 {
		t.Errorf("%d connections: nginx should have retired each after 50 requests", len(conns))
	}
}
