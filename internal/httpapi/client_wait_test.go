package httpapi_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
)

// The smallest time that a client names counts, as the clients for Node and for Python name it.
func TestClientWait(t *testing.T) {
	t.Parallel()
	const limit = time.Minute
	for _, c := range []struct {
		headers []string
		want    time.Duration
	}{
		{nil, limit},
		{[]string{"X-Stainless-Timeout", "20"}, 20 * time.Second},
		{[]string{"X-Stainless-Read-Timeout", "20.0"}, 20 * time.Second}, // Python's str(20.0)
		{[]string{"x-stainless-read-timeout", "2.5"}, 2500 * time.Millisecond},
		{[]string{"X-Stainless-Timeout", "600", "X-Stainless-Read-Timeout", "5"}, 5 * time.Second},
		{[]string{"X-Stainless-Timeout", "5", "X-Stainless-Read-Timeout", "600"}, 5 * time.Second},
		{[]string{"X-Stainless-Read-Timeout", "600", "X-Stainless-Read-Timeout", "7"}, 7 * time.Second},
		{[]string{"Prefer", "wait=5", "X-Stainless-Timeout", "9"}, 5 * time.Second},
		{[]string{"Prefer", "respond-async, wait=90"}, limit},
		{[]string{"X-Stainless-Timeout", "0", "X-Stainless-Read-Timeout", "-3", "Prefer", "wait=soon"}, limit},
		{[]string{"X-Stainless-Timeout", "soon", "X-Stainless-Read-Timeout", "NaN"}, limit},
		{[]string{"X-Stainless-Read-Timeout", "inf"}, limit},
		{[]string{"X-Stainless-Read-Timeout", "1e-12"}, time.Microsecond},
	} {
		h := http.Header{}
		for i := 0; i < len(c.headers); i += 2 {
			h.Add(c.headers[i], c.headers[i+1])
		}
		must.Equal(t, httpapi.ClientWait(h, limit), c.want, "%v", c.headers)
	}
}

// Where the first slot is in an hour, a client that waits for less is refused at once, behind a route and at the plain proxy.
func TestClientsThatWaitForLess(t *testing.T) {
	t.Parallel()
	p, d := newProxyRig(t), newRouteRig(t)
	for _, client := range []*http.Client{p.http.Client(), d.http.Client()} {
		client.Timeout = 30 * time.Second // of one that is not refused
	}
	p.start(t.Context(), "slow") // is allowed to wait for two hours
	p.untilJobs("slow", 1)
	d.byRoute["slow"][0].API.Wait = 4 * time.Hour
	for _, headers := range [][]string{
		{"X-Stainless-Timeout", "600"}, {"X-Stainless-Read-Timeout", "600.0"}, {"X-Stainless-Timeout", "600", "X-Stainless-Read-Timeout", "14400"}, {"Prefer", "wait=200"},
	} {
		p.do("GET", "/v1/proxy/slow/x", "", headers...).want(429, "wait-too-long")
		if a := d.do("POST", "/v1/proxy/slow/v1/chat/completions", chatOf("m"), headers...); a.status != 429 {
			t.Errorf("behind a route, %v: %d %s", headers, a.status, a.text)
		}
	}
}
