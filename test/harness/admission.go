package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/redistest"
)

// Producers starts processes that serve the producer's API on one Redis, with
// these tables in their configuration, and returns their URLs.
func Producers(t *testing.T, redisURL string, n int, tables string) []string {
	t.Helper()
	urls, _ := RunProducers(t, redisURL, n, tables)
	return urls
}

// RunProducers returns their processes too.
func RunProducers(t *testing.T, redisURL string, n int, tables string) (urls []string, processes []*Process) {
	t.Helper()
	urls, processes = make([]string, n), make([]*Process, n)
	for i := range urls {
		addr := redistest.FreeAddr(t)
		path := filepath.Join(t.TempDir(), fmt.Sprintf("producer%d.toml", i))
		text := fmt.Sprintf("[redis]\nurl = %q\n[producer]\nlisten = %q\n%s", redisURL, addr, tables)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		urls[i] = "http://" + addr
		processes[i] = Run(t, urls[i], "producer", "serve", "--config", path)
	}
	return urls, processes
}

// LimitTable is a [[limits]] of the configuration.
func LimitTable(name, algorithm, limit string, more ...string) string {
	return fmt.Sprintf("[[limits]]\nname = %q\nalgorithm = %q\nlimit = %q\n%s\n", name, algorithm, limit, strings.Join(more, "\n"))
}

// Asker calls the check endpoint over connections that it keeps.
type Asker struct{ client *http.Client }

// NewAsker returns an Asker with this many connections.
func NewAsker(t *testing.T, connections int) *Asker {
	transport := &http.Transport{MaxIdleConns: connections, MaxIdleConnsPerHost: connections,
		DialContext: (&net.Dialer{}).DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	return &Asker{&http.Client{Transport: transport}}
}

// Ask returns the status, 0 without a response, and the headers.
func (a *Asker) Ask(ctx context.Context, url string) (int, http.Header) {
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

// Enqueue sends a job and returns the status, 0 without a response.
func (a *Asker) Enqueue(ctx context.Context, url string) int {
	status, _ := a.Post(ctx, url, `{"payload":{}}`)
	return status
}

// Post sends a job and returns the response; status is 0 without one.
func (a *Asker) Post(ctx context.Context, url, body string) (status int, answer string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	request.Header.Set("Content-Type", "application/json")
	return a.send(request)
}

// Cancel cancels a job.
func (a *Asker) Cancel(ctx context.Context, url string) (status int, answer string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodDelete, url, nil)
	if err != nil {
		return 0, err.Error()
	}
	return a.send(request)
}

func (a *Asker) send(request *http.Request) (status int, answer string) {
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

// SentItem is a job of a batch as the receiver reads it.
type SentItem struct {
	ID      string          `json:"id"`
	Attempt int             `json:"attempt"`
	Data    json.RawMessage `json:"data"`
}

// PostFor sends a body and returns the status, 0 without a response, and the headers.
func (a *Asker) PostFor(ctx context.Context, url, body string) (int, http.Header) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0, nil
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := a.client.Do(request)
	if err != nil {
		return 0, nil
	}
	defer response.Body.Close()
	return response.StatusCode, response.Header
}
