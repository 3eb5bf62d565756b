//go:build ship

package signals

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// run is Tundish with a producer and two dispatchers, between producers of jobs and receivers. One receiver fails, one rejects each job, and
// one is slow.
type run struct {
	t            *testing.T
	dir          string // of the built programs and their files
	producer     string // addresses
	dispatchers  [2]*process
	redis        *process
	receiver     *httptest.Server
	redisAddress string
}

// process is a program that runs.
type process struct {
	address string
	config  string
	kill    func()
}

// buckets have between them each kind of metric that a panel shows.
const buckets = `
[[limits]]
name = "per-caller"
per = ["caller"]
limit = "600000/m"
[[limits]]
name = "tight"
per = ["caller"]
limit = "60/m"
burst = 1
[[pools]]
name = "vendor"
rate = "100/s"

[[buckets]]
name = "webhooks"
rate = "50/s"
pool = "vendor"
limits = ["per-caller"]
budgets = ["1000000 calls/h"]
webhook = { url = "RECEIVER/good", timeout = "1500ms", allow_networks = ["127.0.0.0/8"] }
callbacks = { bucket = "callbacks", url = "RECEIVER/good" }
[[buckets]]
name = "callbacks"
rate = "100/s"
webhook = { url = "RECEIVER/good", timeout = "1500ms", job_url = true, allow_networks = ["127.0.0.0/8"] }
[[buckets]]
name = "failing"
rate = "50/s"
webhook = { url = "RECEIVER/bad", timeout = "1500ms", allow_networks = ["127.0.0.0/8"] }
retry = { max_attempts = 2, min_backoff = "10ms", max_backoff = "20ms" }
breaker = { failures = 60, open_for = "1s", max_open = "2s" }
[[buckets]]
name = "rejected"
rate = "50/s"
webhook = { url = "RECEIVER/missing", timeout = "1500ms", allow_networks = ["127.0.0.0/8"] }
retry = { max_attempts = 1 }
[[buckets]]
name = "slow"
rate = "20/s"
webhook = { url = "RECEIVER/slow", timeout = "1500ms", allow_networks = ["127.0.0.0/8"] }
[[buckets]]
name = "small"
rate = "1/s"
capacity = 5
limits = ["tight"]
webhook = { url = "RECEIVER/good", timeout = "1500ms", allow_networks = ["127.0.0.0/8"] }
[[buckets]]
name = "flows"
rate = "50/s"
flow = { key = "job" }
webhook = { url = "RECEIVER/good", timeout = "1500ms", allow_networks = ["127.0.0.0/8"] }
[[buckets]]
name = "groups"
rate = "50/s"
flow = { key = "job" }
group = { key = "job" }
webhook = { url = "RECEIVER/good", timeout = "1500ms", allow_networks = ["127.0.0.0/8"] }
[[buckets]]
name = "hours"
rate = "50/s"
webhook = { url = "RECEIVER/good", timeout = "1500ms", allow_networks = ["127.0.0.0/8"] }
drain = { cron = "*/10 * * * * *", finish_by = "9s" }

[[schedules]]
name = "often"
bucket = "flows"
cron = "* * * * * *"
flow = "often"
payload = "{}"
`

// jobs are what producers send to each bucket ten times a second.
var jobs = map[string]string{
	"webhooks": strings.Repeat(`{"payload":{}}`+"\n", 3),
	"failing":  strings.Repeat(`{"payload":{}}`+"\n", 3),
	"rejected": `{"payload":{}}` + "\n",
	"slow":     `{"payload":{}}` + "\n",
	"small":    `{"payload":{}}` + "\n",
	"flows":    `{"payload":{},"flow":"acme"}` + "\n",
	"groups":   `{"payload":{},"flow":"hooks","group":"acme"}` + "\n",
	"hours":    `{"payload":{}}` + "\n",
}

func startRun(t *testing.T) *run {
	t.Helper()
	r := &run{t: t, dir: t.TempDir()}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", r.dir+"/", "./cmd/...")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the programs: %v\n%s", err, out)
	}
	r.receiver = httptest.NewServer(http.HandlerFunc(receive))
	t.Cleanup(r.receiver.Close)
	r.redisAddress = freeAddress(t)
	_, port, _ := strings.Cut(r.redisAddress, ":")
	r.redis = &process{kill: r.start("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", r.dir)}
	await(t, "Redis listens", func(ctx context.Context) bool {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", r.redisAddress)
		return err == nil && conn.Close() == nil
	})
	r.producer = freeAddress(t)
	p := r.startProgram("producer", "serve", r.producer, freeAddress(t))
	r.producer = p.address
	for i := range r.dispatchers {
		address := freeAddress(t)
		r.dispatchers[i] = r.startProgram("dispatcher", "run", address, address)
	}
	r.produce()
	return r
}

// startProgram starts a producer or a dispatcher and waits until it is ready.
func (r *run) startProgram(program, command, address, dispatcher string) *process {
	r.t.Helper()
	p := &process{address: address, config: filepath.Join(r.dir, strings.ReplaceAll(address, ":", "-")+".toml")}
	text := fmt.Sprintf("[redis]\nurl = \"redis://%s/0\"\n[producer]\nlisten = %q\n[dispatcher]\nlisten = %q\nlease = \"2s\"\n[log]\nlevel = \"error\"\n", r.redisAddress, r.producer, dispatcher) +
		strings.ReplaceAll(buckets, "RECEIVER", r.receiver.URL)
	if err := os.WriteFile(p.config, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	p.kill = r.start(filepath.Join(r.dir, program), command, "--config", p.config)
	await(r.t, program+" is ready", func(ctx context.Context) bool { return status(ctx, "http://"+address+"/readyz") == http.StatusOK })
	return p
}

// start starts a program. What it has said is shown if the test fails.
func (r *run) start(name string, args ...string) (kill func()) {
	r.t.Helper()
	var said bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		r.t.Fatalf("start %s: %v; prometheus and redis-server are packages of Debian", name, err)
	}
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	r.t.Cleanup(func() {
		kill()
		if text := said.String(); r.t.Failed() {
			const most = 3000
			r.t.Logf("%s %q said at last:\n%s", filepath.Base(name), args, text[max(0, len(text)-most):])
		}
	})
	return kill
}

// produce enqueues jobs and asks a limit until the test ends.
func (r *run) produce() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	r.t.Cleanup(func() { cancel(); <-ended })
	go func() {
		defer close(ended)
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			for bucket, lines := range jobs { // Redis goes away at last, so no answer is wanted
				post(ctx, "http://"+r.producer+"/v1/buckets/"+bucket+"/jobs/batch", "application/x-ndjson", lines)
			}
			post(ctx, "http://"+r.producer+"/v1/limits/per-caller/check", "application/json", "{}")
		}
	}()
}

func receive(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/bad":
		w.WriteHeader(http.StatusInternalServerError)
	case "/missing":
		w.WriteHeader(http.StatusNotFound)
	case "/slow":
		select {
		case <-time.After(time.Second):
		case <-r.Context().Done():
		}
	}
}

func post(ctx context.Context, url, kind, body string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return
	}
	request.Header.Set("Content-Type", kind)
	if response, err := http.DefaultClient.Do(request); err == nil {
		response.Body.Close()
	}
}

// status is that of an answer, 0 without one.
func status(ctx context.Context, url string) int {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	response.Body.Close()
	return response.StatusCode
}

// await polls until it holds, for a minute and a half at most.
func await(t *testing.T, what string, holds func(ctx context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for !holds(ctx) {
		select {
		case <-ctx.Done():
			t.Fatalf("not after 90 s: %s", what)
		case <-ticker.C:
		}
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}
