package browser

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
)

// site is a dispatcher and a producer, their Redis, and the receiver of all buckets.
type site struct {
	t        *testing.T
	console  string // the address of its first page
	api, ops string // addresses of the APIs
	redis    *redistest.Server

	mu       sync.Mutex
	received map[string]int // by the path of the bucket's URL
}

// secret is that of the key of a site, which may do everything.
const secret = "a secret of the browser test"

// buckets are those of every page: with flows, in a pool, with limits, with drain windows, and one whose receiver refuses.
const buckets = `
[[limits]]
name = "per-caller"
per = ["caller"]
limit = "6000/m"

[[pools]]
name = "vendor"
rate = "100/s"

[[buckets]]
name = "even"
rate = "20/s"
limits = ["per-caller"]
webhook = { url = "RECEIVER/even", allow_networks = ["127.0.0.0/8"] }

[[buckets]]
name = "letters"
rate = "1/h"
pool = "vendor"
webhook = { url = "RECEIVER/letters", allow_networks = ["127.0.0.0/8"] }
[buckets.flow]
key = "job"

[[buckets]]
name = "parts"
rate = "1/h"
webhook = { url = "RECEIVER/parts", allow_networks = ["127.0.0.0/8"] }
[buckets.flow]
key = "job"
[buckets.group]
key = "job"

[[buckets]]
name = "paused"
rate = "50/s"
webhook = { url = "RECEIVER/paused", allow_networks = ["127.0.0.0/8"] }

[[buckets]]
name = "refused"
rate = "50/s"
retry = { max_attempts = 1 }
webhook = { url = "RECEIVER/refused", allow_networks = ["127.0.0.0/8"] }

[[buckets]]
name = "nightly"
rate = "50/s"
webhook = { url = "RECEIVER/nightly", allow_networks = ["127.0.0.0/8"] }
[buckets.drain]
cron = "0 2 * * *"
for = "1h"

[[schedules]]
name = "report"
cron = "0 2 * * *"
bucket = "nightly"
payload = '{"report":"daily"}'
`

// newSite starts everything, with this end of the configuration, and with a key if it is to have one.
func newSite(t *testing.T, config string, withKey bool) *site {
	t.Helper()
	s := &site{t: t, redis: redistest.Start(t, "--appendonly", "yes"), api: redistest.FreeAddr(t), ops: redistest.FreeAddr(t), received: map[string]int{}}
	receiver := httptest.NewServer(s)
	t.Cleanup(receiver.Close)
	head := fmt.Sprintf("[redis]\nurl = %q\ntimeout = \"10s\"\n[console]\nname = \"browser test\"\n[producer]\nlisten = %q\n[dispatcher]\nlisten = %q\n", s.redis.URL(), s.api, s.ops)
	if withKey {
		head += fmt.Sprintf("[[keys]]\nname = \"root\"\nsha256 = \"%x\"\nroles = [\"admin\"]\nbuckets = [\"*\"]\n", sha256.Sum256([]byte(secret)))
	}
	file := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(file, []byte(head+strings.ReplaceAll(config, "RECEIVER", receiver.URL)), 0o600); err != nil {
		t.Fatal(err)
	}
	s.start(s.ops, "dispatcher", "run", "--config", file)
	s.start(s.api, "producer", "serve", "--config", file)
	s.console = "http://" + s.ops + "/console/"
	return s
}

// ServeHTTP receives what leaves. That of one bucket is refused, which kills its jobs.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.received[r.URL.Path]++
	if r.URL.Path == "/refused" {
		http.Error(w, "no such customer", http.StatusBadRequest)
	}
}

func (s *site) got(bucket string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.received["/"+bucket]
}

// start runs a program until the test ends, and waits until it is ready.
func (s *site) start(address, name string, args ...string) {
	s.t.Helper()
	var output bytes.Buffer
	cmd := exec.Command(filepath.Join(programs, name), args...)
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in its output
		close(ended)
	}()
	s.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
		if s.t.Failed() {
			s.t.Logf("%s:\n%s", name, output.Bytes())
		}
	})
	await(s.t, name+" is ready", func() bool {
		select {
		case <-ended:
			s.t.Fatalf("%s has ended", name)
		default:
		}
		status, _, err := s.try(http.MethodGet, "http://"+address+"/readyz", nil)
		return err == nil && status == http.StatusOK
	})
}

// try sends a request with the key.
func (s *site) try(method, url string, body any) (status int, text []byte, err error) {
	data, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(data))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+secret)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	text, err = io.ReadAll(response.Body)
	return response.StatusCode, text, err
}

// do sends a request, which must succeed.
func (s *site) do(method, url string, body any) []byte {
	s.t.Helper()
	status, text, err := s.try(method, url, body)
	if err != nil || status/100 != 2 {
		s.t.Fatalf("%s %s: %d %s (%v)", method, url, status, text, err)
	}
	return text
}

// enqueue puts n jobs in, in batches.
func (s *site) enqueue(bucket string, n int, job map[string]any) {
	s.t.Helper()
	const most = 100
	for ; n > 0; n -= most {
		jobs := make([]map[string]any, min(n, most))
		for i := range jobs {
			jobs[i] = job
		}
		s.do(http.MethodPost, "http://"+s.api+"/v1/buckets/"+bucket+"/jobs/batch", jobs)
	}
}

// await polls until something is so. It fails only when the test's own time is over.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for !so() {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-deadline(t):
			t.Fatalf("in vain: %s", what)
		}
	}
}

// deadline is when the time of a test is nearly over.
func deadline(t *testing.T) <-chan time.Time {
	t.Helper()
	end, ok := t.Deadline()
	if !ok {
		return nil
	}
	return time.After(time.Until(end) - 20*time.Second)
}
