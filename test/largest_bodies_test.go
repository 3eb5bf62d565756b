package test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// The chart's memory of a producer, and what it has Go use of it.
const (
	podMemory  = 256 << 20
	goMemLimit = "GOMEMLIMIT=230MiB"
)

// A producer with the memory of the chart survives two of the largest requests to an LLM API at a time, from two tenants, of the forms that take the
// most memory where they become values. It sends one of the two at least. Another tenant gets an answer meanwhile: 202, or 503 where these bodies take
// all of body_memory.
func TestLargestBodiesFitIntoThePod(t *testing.T) {
	harness.BesideOthers(t)
	const largest = 32 << 20
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`)
	}))
	t.Cleanup(provider.Close)
	server, address, path := redistest.Start(t), redistest.FreeAddr(t), filepath.Join(t.TempDir(), "producer.toml")
	ops, tenants := redistest.FreeAddr(t), []string{strings.Repeat("a", 32), strings.Repeat("b", 32), strings.Repeat("c", 32)}
	text := fmt.Sprintf(`[redis]
url = %q
timeout = "10s"
[producer]
listen = %q
store_timeout = "10s"
[dispatcher]
listen = %q
[[buckets]]
name = "model"
rate = "100/s"
worker = "llm"
budgets = ["60000000 tokens/m"]
[buckets.llm]
api = "openai"
base_url = %q
allow_networks = ["127.0.0.0/8"]
serve_proxy = true
[[buckets]]
name = "other"
rate = "1/s"
webhook = { url = %q, allow_networks = ["127.0.0.0/8"] }
`, server.URL(), address, ops, provider.URL, provider.URL)
	for i, key := range tenants {
		text += fmt.Sprintf("[[keys]]\nname = \"tenant%d\"\nsha256 = \"%x\"\nroles = [\"enqueue\"]\nbuckets = [\"*\"]\n", i, sha256.Sum256([]byte(key)))
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	url := "http://" + address
	cmd := exec.Command(filepath.Join(harness.Programs, "producer"), "serve", "--config", path)
	cmd.Env = append(os.Environ(), goMemLimit)
	p := harness.RunCommand(t, url, cmd)
	harness.Run(t, "http://"+ops, "dispatcher", "run", "--config", path)
	post := func(tenant int, path, body string) (int, string, error) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+path, strings.NewReader(body))
		if err != nil {
			return 0, "", err
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Authorization", "Bearer "+tenants[tenant])
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
		var sent atomic.Int64
		for tenant := range 2 {
			both.Go(func() {
				status, answer, err := post(tenant, "/v1/proxy/model/v1/chat/completions", body)
				switch {
				case err == nil && status == http.StatusOK:
					sent.Add(1)
				case err != nil || status != http.StatusServiceUnavailable || !strings.Contains(answer, `"overloaded"`):
					t.Errorf("%d bytes of %q: %d %s, %v", len(body), form, status, answer, err)
				}
			})
		}
		done := make(chan struct{})
		go func() { both.Wait(); close(done) }()
		others, refused, slowest := 0, 0, time.Duration(0)
		for isDone := false; !isDone; others++ {
			at := time.Now()
			status, answer, err := post(2, "/v1/buckets/other/jobs", `{"payload":"x"}`)
			switch {
			case err == nil && status == http.StatusServiceUnavailable && strings.Contains(answer, `"overloaded"`):
				refused++
			case err != nil || status/100 != 2:
				t.Errorf("another tenant, while %q is read: %d %s, %v", form, status, answer, err)
			}
			slowest = max(slowest, time.Since(at))
			select {
			case <-done:
				isDone = true
			default:
			}
		}
		if sent.Load() == 0 {
			t.Errorf("none of two bodies of %q was sent", form)
		}
		t.Logf("two of %q: %d sent in %s; %d requests of another tenant, %d refused, the slowest %s; the most memory so far is %d MiB",
			form, sent.Load(), time.Since(began).Round(time.Millisecond), others, refused, slowest.Round(time.Millisecond), peakOf(t, p)>>20)
	}
	if peak := peakOf(t, p); peak >= podMemory {
		t.Errorf("the producer had %d MiB, and the pod has %d", peak>>20, podMemory>>20)
	}
	select {
	case <-p.Done:
		t.Error("the producer has ended")
	default:
	}
}

// peakOf is how many bytes of memory a process had at most, by the kernel.
func peakOf(t *testing.T, p *harness.Process) (bytes int64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Cmd.Process.Pid))
	if err != nil {
		t.Skip("the system tells no peak of memory: ", err)
	}
	_, after, _ := strings.Cut(string(text), "VmHWM:")
	if _, err := fmt.Sscan(after, &bytes); err != nil {
		t.Fatalf("%v: %.300s", err, text)
	}
	return bytes << 10
}
