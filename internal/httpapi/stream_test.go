package httpapi_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
)

// streaming serves the operator's API on a port until stop is called, which returns what Serve says.
func streaming(t *testing.T, keys ...apikey.Key) (url string, stop func() error) {
	t.Helper()
	op := newOperator(t, connect(t, redistest.Start(t).URL()), nil, buckets(t)[:1])
	handler := httpapi.NewOps(httpapi.OpsConfig{Buckets: op, Keys: keys, Logger: logTo(t.Output())})
	listener := must.Get(httpapi.Listen(t.Context(), "127.0.0.1:0", "dispatcher.listen"))(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- httpapi.Serve(ctx, listener, handler, time.Minute, logTo(t.Output())) }()
	stop = func() error {
		cancel()
		err := <-ended
		ended <- err // may be asked again
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return "http://" + listener.Addr().String(), stop
}

// opened is an answer whose body is closed when the test ends.
type opened struct {
	status int
	header http.Header
	body   io.ReadCloser
}

func openStream(t *testing.T, url, key string) *opened {
	t.Helper()
	req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody))(t)
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := http.DefaultClient.Do(req)
	must.OK(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	return &opened{resp.StatusCode, resp.Header, resp.Body}
}

// As many streams as one caller may have are open, one more is refused, and all end when the server stops, which is no error.
func TestStreams(t *testing.T) {
	t.Parallel()
	url, stop := streaming(t)
	var open []*opened
	for range 100 {
		resp := openStream(t, url+"/v1/stream?bucket=roomy", "")
		if resp.status != 200 || resp.header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("%d, %s", resp.status, resp.header)
		}
		open = append(open, resp)
	}
	if resp := openStream(t, url+"/v1/stream", ""); resp.status != 503 || resp.header.Get("Retry-After") == "" {
		t.Errorf("one more: %d", resp.status)
	}
	lines := bufio.NewScanner(open[0].body)
	var seen []string
	for lines.Scan() && len(seen) < 5 {
		if lines.Text() != "" {
			seen = append(seen, lines.Text())
		}
	}
	if len(seen) < 4 || seen[0] != "retry: 2000" || !strings.HasPrefix(seen[1], "id: ") || seen[2] != "event: second" || !strings.HasPrefix(seen[3], `data: {"at":"`) {
		t.Errorf("the stream says %q", seen)
	}
	must.OK(t, open[1].body.Close())
	for { // the place of one that has gone is free
		resp := openStream(t, url+"/v1/stream", "")
		if resp.status == 200 {
			break
		}
		_ = resp.body.Close()
	}
	if err := stop(); err != nil {
		t.Errorf("the stop: %v", err)
	}
	for _, resp := range open[2:] {
		if _, err := io.Copy(io.Discard, resp.body); err != nil {
			t.Fatalf("a stream ended with %v", err)
		}
	}
}

// A caller that opens as many streams as it may leaves streams to others.
func TestStreamsAreShared(t *testing.T) {
	t.Parallel()
	everywhere := []string{apikey.AllBuckets}
	url, _ := streaming(t, keyOf("loud", everywhere, apikey.RoleRead), keyOf("quiet", everywhere, apikey.RoleRead))
	open := func(key string) (n int) {
		for openStream(t, url+"/v1/stream", key).status == http.StatusOK {
			n++
		}
		return n
	}
	must.Equal(t, open("loud"), 100, "one caller alone has streams of 200")
	must.Equal(t, open("quiet"), 50, "another caller has of the 100 that are left")
}

// A key hears of its own buckets only.
func TestStreamOfAKey(t *testing.T) {
	t.Parallel()
	url, _ := streaming(t, keyOf("reader", []string{"other"}, apikey.RoleRead), keyOf("caller", []string{apikey.AllBuckets}, apikey.RoleEnqueue), keyOf("everybody", []string{apikey.AllBuckets}, apikey.RoleRead))
	for what, want := range map[string]int{"reader /v1/stream": 200, "reader /v1/stream?bucket=other": 404, "reader /v1/stream?bucket=roomy": 403, "everybody /v1/stream?bucket=roomy": 200, "everybody /v1/stream?bucket=bins:x": 404, "caller /v1/stream": 403, " /v1/stream": 401} {
		var key, path string
		must.Get(fmt.Sscanf(strings.TrimSpace("x"+what), "%s %s", &key, &path))(t)
		must.Equal(t, openStream(t, url+path, key[1:]).status, want, "%q", what)
	}
}
