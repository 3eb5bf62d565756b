package test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tundish-io/tundish/internal/redistest"
)

// producers starts processes that serve the producer's API on one Redis, with
// these tables in their configuration, and returns their URLs.
func producers(t *testing.T, redisURL string, n int, tables string) []string {
	t.Helper()
	urls, _ := runProducers(t, redisURL, n, tables)
	return urls
}

// runProducers returns their processes too.
func runProducers(t *testing.T, redisURL string, n int, tables string) (urls []string, processes []*process) {
	t.Helper()
	urls, processes = make([]string, n), make([]*process, n)
	for i := range urls {
		addr := redistest.FreeAddr(t)
		path := filepath.Join(t.TempDir(), fmt.Sprintf("producer%d.toml", i))
		text := fmt.Sprintf("[redis]\nurl = %q\n[producer]\nlisten = %q\n%s", redisURL, addr, tables)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		urls[i] = "http://" + addr
		processes[i] = run(t, urls[i], "producer", "serve", "--config", path)
	}
	return urls, processes
}

// limitTable is a [[limits]] of the configuration.
func limitTable(name, algorithm, limit string, more ...string) string {
	return fmt.Sprintf("[[limits]]\nname = %q\nalgorithm = %q\nlimit = %q\n%s\n", name, algorithm, limit, strings.Join(more, "\n"))
}

// algorithms are those of the field, with a setting each that has one.
var algorithms = []struct{ name, algorithm, more string }{
	{"bucket", "token_bucket", ""},
	{"log", "sliding_window_log", ""},
	{"counter", "sliding_window_counter", ""},
	{"pieces", "sliding_window_counter", "precision = 10"},
	{"fixed", "fixed_window", ""},
}

// asker asks the check endpoint over connections that it keeps.
type asker struct{ client *http.Client }

func newAsker(t *testing.T, connections int) *asker {
	transport := &http.Transport{MaxIdleConns: connections, MaxIdleConnsPerHost: connections,
		DialContext: (&net.Dialer{}).DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	return &asker{&http.Client{Transport: transport}}
}

// ask returns the status, 0 where there was no answer, and the headers.
func (a *asker) ask(ctx context.Context, url string) (int, http.Header) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil
	}
	response, err := a.client.Do(request)
	if err != nil {
		return 0, nil
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode, response.Header
}

// enqueue sends a job and returns the status, 0 where there was no answer.
func (a *asker) enqueue(ctx context.Context, url string) int {
	status, _ := a.post(ctx, url, `{"payload":{}}`)
	return status
}

// post sends a job and returns what was answered, 0 where there was no answer.
func (a *asker) post(ctx context.Context, url, body string) (status int, answer string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	request.Header.Set("Content-Type", "application/json")
	return a.send(request)
}

// cancel cancels a job.
func (a *asker) cancel(ctx context.Context, url string) (status int, answer string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodDelete, url, nil)
	if err != nil {
		return 0, err.Error()
	}
	return a.send(request)
}

func (a *asker) send(request *http.Request) (status int, answer string) {
	response, err := a.client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(body)
}

// TestExactLimit: 64 callers at 4 processes ask for more than a limit of 1,000
// holds; 1,000 of them pass. The window is the longest there is, so that no
// edge and no refill lies within the test.
func TestExactLimit(t *testing.T) {
	t.Parallel()
	const limit, processes, callers, each = 1000, 4, 64, 25
	tables := "store_timeout = \"10s\"\n" // a busy machine must not decide who passes
	for _, a := range algorithms {
		tables += limitTable(a.name, a.algorithm, fmt.Sprintf("%d/744h", limit), a.more)
	}
	urls := producers(t, redistest.Start(t).URL(), processes, tables)
	for _, a := range algorithms {
		t.Run(a.name, func(t *testing.T) {
			asker := newAsker(t, callers)
			var admitted, refused, other atomic.Int64
			var all sync.WaitGroup
			for caller := range callers {
				all.Go(func() {
					for range each {
						status, _ := asker.ask(t.Context(), urls[caller%processes]+"/v1/limits/"+a.name+"/check")
						switch status {
						case http.StatusOK:
							admitted.Add(1)
						case http.StatusTooManyRequests:
							refused.Add(1)
						default:
							other.Add(1)
						}
					}
				})
			}
			all.Wait()
			t.Logf("%s: of %d from %d callers at %d processes: %d admitted, %d refused", a.algorithm, callers*each, callers, processes, admitted.Load(), refused.Load())
			if admitted.Load() != limit || other.Load() != 0 {
				t.Errorf("%d admitted, %d answered otherwise; want %d and 0", admitted.Load(), other.Load(), limit)
			}
		})
	}
}
