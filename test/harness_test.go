package test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/checker"
	"github.com/tundish-io/tundish/internal/redistest"
)

// programs is the folder with the built programs.
var programs string

func TestMain(m *testing.M) {
	if url := os.Getenv(victimOf); url != "" {
		fmt.Fprintln(os.Stderr, "test:", victim(url))
		os.Exit(1)
	}
	code, err := buildAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "test:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

func buildAndRun(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "tundish-test-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	programs = dir
	build := exec.Command("go", "build", "-o", dir, "../cmd/producer", "../cmd/dispatcher")
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return m.Run(), nil
}

// plan is what a test asks of the system.
type plan struct {
	rate        int           // departures a second
	dispatchers int           // processes
	lease       time.Duration // 0 means 30 s
	capacity    int           // 0 means 100,000
	maxInFlight int           // 0 means 4,000
	bucket      string        // more keys of the bucket, and its tables
	hold        time.Duration // how long the receiver takes to answer
	timeout     time.Duration // of a delivery; 0 means nine tenths of the lease, and at most 10 s
	redisURL    string        // what the programs use, if not the server itself
	revision    int           // of the configuration

	// respond answers instead of a 200 after hold.
	respond func(w http.ResponseWriter, r *http.Request, id string, attempt int)
}

// system is the running programs around one Redis and one receiver.
type system struct {
	t           *testing.T
	redis       *redistest.Server
	inspector   *redis.Client
	history     *checker.History
	receiver    *httptest.Server
	api         string // URL of the producer
	dispatchers []*process
	config      string
	ops         string            // URL of a dispatcher with that configuration, if one is started
	restart     []func() *process // starts a dispatcher with the configuration of the i-th
}

const bucketName = "webhooks"

func start(t *testing.T, server *redistest.Server, p plan) *system {
	t.Helper()
	s := &system{t: t, redis: server, inspector: server.Client(), history: &checker.History{}}
	if p.respond == nil {
		p.respond = func(_ http.ResponseWriter, r *http.Request, _ string, _ int) {
			select {
			case <-time.After(p.hold):
			case <-r.Context().Done():
			}
		}
	}
	s.receiver = httptest.NewServer(&checker.Receiver{History: s.history, Respond: p.respond})
	t.Cleanup(s.receiver.Close)
	if p.redisURL == "" {
		p.redisURL = server.URL()
	}
	if p.lease == 0 {
		p.lease = 30 * time.Second
	}
	if p.capacity == 0 {
		p.capacity = 100_000
	}
	if p.timeout == 0 {
		p.timeout = min(p.lease*9/10, 10*time.Second)
	}
	dir := t.TempDir()
	producerAddr := redistest.FreeAddr(t)
	s.api = "http://" + producerAddr
	write := func(name, opsAddr string) string {
		path := filepath.Join(dir, name)
		text := fmt.Sprintf(`
revision = %d
[redis]
url = %q
[producer]
listen = %q
[dispatcher]
listen = %q
concurrency = 512
lease = %q
[[buckets]]
name = %q
rate = "%d/s"
capacity = %d
max_in_flight = %d
%s
[buckets.retry]
min_backoff = "100ms"
max_backoff = "1s"
[buckets.webhook]
url = %q
timeout = %q
allow_networks = ["127.0.0.0/8"]
`, p.revision, p.redisURL, producerAddr, opsAddr, p.lease, bucketName, p.rate, p.capacity, cmp.Or(p.maxInFlight, 4000), p.bucket, s.receiver.URL, p.timeout)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	opsAddr := redistest.FreeAddr(t)
	s.ops = "http://" + opsAddr
	s.config = write("producer.toml", opsAddr)
	run(t, s.api, "producer", "serve", "--config", s.config)
	for i := range p.dispatchers {
		ops := redistest.FreeAddr(t)
		path := write(fmt.Sprintf("dispatcher%d.toml", i), ops)
		s.restart = append(s.restart, func() *process {
			return run(t, "http://"+ops, "dispatcher", "run", "--config", path)
		})
		s.dispatchers = append(s.dispatchers, s.restart[i]())
	}
	return s
}

// process is a program that runs until the test ends.
type process struct {
	cmd    *exec.Cmd
	output *lockedBuffer
	done   chan struct{}
}

// run starts a program and waits until it is ready.
func run(t *testing.T, url, name string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(filepath.Join(programs, name), args...), output: &lockedBuffer{}, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // how it ended is in its output
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.done:
		case <-time.After(patience * 10 * time.Second):
			p.kill()
			t.Errorf("%s did not stop within %s of SIGTERM", name, patience*10*time.Second)
		}
		if t.Failed() {
			t.Logf("%s %v:\n%s", name, args, p.output)
		}
	})
	await(t, 10*time.Second, name+" is ready", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
		if err != nil {
			return false
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	return p
}

// stop ends the process as a service manager does, and waits for it.
func (p *process) stop(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(patience * 10 * time.Second):
		t.Fatalf("the process did not stop within %s of SIGTERM", patience*10*time.Second)
	}
}

func (p *process) signal(t *testing.T, signal os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// patience is how much longer than on a machine that has nothing else to do
// something may take until a test gives up. It is no bound of what is promised.
const patience = 3

// await polls until something is true.
func await(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience * limit)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %s: %s", patience*limit, what)
		}
	}
}

// post enqueues jobs id by id through the producer, in batches, and logs what
// was answered.
func (s *system) post(prefix string, count int) {
	s.t.Helper()
	s.postAs(prefix, count, "")
}

// postAs is post of jobs with more fields: JSON, each after a comma.
func (s *system) postAs(prefix string, count int, fields string) {
	s.t.Helper()
	lines := make([]string, count)
	for i := range lines {
		lines[i] = fmt.Sprintf(`{"id":"%s-%d","payload":{"n":%d}%s}`, prefix, i, i, fields)
	}
	s.postLines(lines)
}

// postLines enqueues jobs, each JSON, in their order.
func (s *system) postLines(lines []string) {
	s.t.Helper()
	const size = 200
	for batch := range slices.Chunk(lines, size) {
		status, answer := s.request(http.MethodPost, "/v1/buckets/"+bucketName+"/jobs/batch", "application/x-ndjson",
			strings.NewReader(strings.Join(batch, "\n")+"\n"))
		if status != http.StatusOK {
			s.t.Fatalf("batch: %d %s", status, answer)
		}
		var results struct {
			Results []struct {
				Status int    `json:"status"`
				ID     string `json:"id"`
			} `json:"results"`
		}
		if err := json.Unmarshal(answer, &results); err != nil {
			s.t.Fatal(err)
		}
		for _, r := range results.Results {
			if r.Status != http.StatusAccepted {
				s.t.Fatalf("job %s: %d", r.ID, r.Status)
			}
			s.history.Admitted(r.ID, time.Now())
		}
	}
}

// send enqueues one job and returns the status, 0 if there was no answer.
func (s *system) send(id string) int {
	status, _ := s.request(http.MethodPost, "/v1/buckets/"+bucketName+"/jobs", "application/json",
		strings.NewReader(fmt.Sprintf(`{"id":%q,"payload":{}}`, id)))
	switch status {
	case http.StatusAccepted:
		s.history.Admitted(id, time.Now())
	default:
		s.history.Unknown(id)
	}
	return status
}

func (s *system) request(method, path, contentType string, body io.Reader) (int, []byte) {
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.api+path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Content-Type", contentType)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, nil
	}
	return response.StatusCode, answer
}

// awaitDelivered waits until every admitted job has arrived.
func (s *system) awaitDelivered(limit time.Duration) checker.Result {
	s.t.Helper()
	var result checker.Result
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience * limit)
	for {
		result = s.history.Check()
		if len(result.Lost) == 0 {
			return result
		}
		select {
		case <-tick.C:
		case <-deadline:
			s.t.Fatalf("%d of %d jobs did not arrive within %s, such as %v", len(result.Lost), result.Admitted, patience*limit,
				result.Lost[:min(5, len(result.Lost))])
		}
	}
}

// unfinished is what Redis still holds of the bucket.
func (s *system) unfinished() int64 {
	n, err := s.inspector.HLen(s.t.Context(), "tundish:{"+bucketName+"}:b:"+bucketName+":body").Result()
	if err != nil {
		return -1
	}
	return n
}

// lockedBuffer keeps the output of a process.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
