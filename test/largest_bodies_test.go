package test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
)

// The chart's memory of a producer, and what it has Go use of it.
const (
	podMemory  = 256 << 20
	goMemLimit = "GOMEMLIMIT=230MiB"
)

// A producer with the memory of the chart survives two of the largest requests to an LLM API at a time, of the forms that take the most memory where
// they become values, and answers other tenants meanwhile.
func TestLargestBodiesFitIntoThePod(t *testing.T) {
	besideOthers(t)
	const largest = 32 << 20
	var mu sync.Mutex
	var came []int64
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		mu.Lock()
		came = append(came, n)
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`)
	}))
	t.Cleanup(provider.Close)
	server, address, path := redistest.Start(t), redistest.FreeAddr(t), filepath.Join(t.TempDir(), "producer.toml")
	text := fmt.Sprintf(`[redis]
url = %q
timeout = "10s"
[producer]
listen = %q
store_timeout = "10s"
[[buckets]]
name = "model"
rate = "100/s"
worker = "llm"
budgets = ["1000000000 tokens/m"]
[buckets.llm]
api = "openai"
base_url = %q
allow_networks = ["127.0.0.0/8"]
serve_proxy = true
[[buckets]]
name = "other"
rate = "1/s"
webhook = { url = %q, allow_networks = ["127.0.0.0/8"] }
`, server.URL(), address, provider.URL, provider.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	url := "http://" + address
	cmd := exec.Command(filepath.Join(programs, "producer"), "serve", "--config", path)
	cmd.Env = append(os.Environ(), goMemLimit)
	p := runCommand(t, url, cmd)
	post := func(path, body string) (int, string, error) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+path, strings.NewReader(body))
		if err != nil {
			return 0, "", err
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return 0, "", err
		}
		defer response.Body.Close()
		answer, err := io.ReadAll(response.Body)
		return response.StatusCode, fmt.Sprintf("%.300s", answer), err
	}
	for _, form := range []string{"1,", "{},", `[],`, `"",`} {
		const head, tail = `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"x"}],"metadata":[`, `0]}`
		body := head + strings.Repeat(form, (largest-len(head)-len(tail))/len(form)) + tail
		began := time.Now()
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if status, answer, err := post("/v1/proxy/model/v1/chat/completions", body); status != http.StatusOK || err != nil {
					t.Errorf("%d bytes of %q: %d %s, %v", len(body), form, status, answer, err)
				}
			})
		}
		done := make(chan struct{})
		go func() { both.Wait(); close(done) }()
		others, slowest := 0, time.Duration(0)
		for isDone := false; !isDone; others++ {
			at := time.Now()
			if status, answer, err := post("/v1/buckets/other/jobs", `{"payload":"x"}`); status/100 != 2 || err != nil {
				t.Fatalf("another tenant, while %q is read: %d %s, %v", form, status, answer, err)
			}
			slowest = max(slowest, time.Since(at))
			select {
			case <-done:
				isDone = true
			default:
			}
		}
		t.Logf("two of %q: %s; %d requests of others, the slowest %s; the most memory so far is %d MiB", form, time.Since(began).Round(time.Millisecond), others, slowest, peakOf(t, p)>>20)
	}
	if peak := peakOf(t, p); peak >= podMemory {
		t.Errorf("the producer had %d MiB, and the pod has %d", peak>>20, podMemory>>20)
	}
	select {
	case <-p.done:
		t.Error("the producer has ended")
	default:
	}
	mu.Lock()
	defer mu.Unlock()
	if len(came) != 8 {
		t.Errorf("the provider got %d requests: %v", len(came), came)
	}
}

// peakOf is how many bytes of memory a process had at most, by the kernel.
func peakOf(t *testing.T, p *process) (bytes int64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Skip("the system tells no peak of memory: ", err)
	}
	_, after, _ := strings.Cut(string(text), "VmHWM:")
	if _, err := fmt.Sscan(after, &bytes); err != nil {
		t.Fatalf("%v: %.300s", err, text)
	}
	return bytes << 10
}
