package test

import (
	"bytes"
	"cmp"
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
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/checker"
	"github.com/tundish-io/tundish/internal/redistest"
)

// programs is the folder with the built programs.
var programs string

// mains are programs that this one is instead, where a test starts it again with such a
// variable in its environment.
var mains = map[string]func(value string) error{}

func TestMain(m *testing.M) {
	for variable, main := range mains {
		if value := os.Getenv(variable); value != "" {
			fmt.Fprintln(os.Stderr, "test:", main(value))
			os.Exit(1)
		}
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
	concurrency int           // deliveries of each at a time; 0 means 512
	lease       time.Duration // 0 means 30 s
	capacity    int           // 0 means 100,000
	maxInFlight int           // 0 means 4,000
	bucket      string        // more keys of the bucket, and its tables
	api         string        // the worker is http: more keys of its table
	more        string        // at the end of the configuration
	asynq       string        // the worker is asynq: the keys of its table
	hold        time.Duration // how long the receiver takes to answer
	timeout     time.Duration // of a delivery; 0 means nine tenths of the lease, and at most 10 s
	redisURL    string        // what the programs use, if not the server itself
	redis       string        // more keys of the table redis
	retry       string        // more keys of the bucket's table retry

	// around returns the command that runs a dispatcher, by its number, the address of its API and its own command; nil: its own.
	around   func(i int, ops string, command []string) []string
	revision int  // of the configuration
	patient  bool // the producer waits 10 s for Redis, so that a busy machine is no failure of the store

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
	producer    *process
	dispatchers []*process
	config      string
	ops         string            // URL of a dispatcher with that configuration, if one is started
	opsOf       []string          // URL of each dispatcher
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
	address := "[buckets.webhook]\nurl"
	if p.api != "" {
		address, p.bucket = "[buckets.http]\nbase_url", "worker = \"http\"\n"+p.bucket
	}
	worker := fmt.Sprintf("%s = %q\ntimeout = %q\nallow_networks = [\"127.0.0.0/8\"]\n%s", address, s.receiver.URL, p.timeout, p.api)
	if p.asynq != "" {
		worker, p.bucket = "[buckets.asynq]\n"+p.asynq, "worker = \"asynq\"\n"+p.bucket
	}
	var redisTimeout, storeTimeout string
	if p.patient {
		redisTimeout, storeTimeout = `timeout = "10s"`, `store_timeout = "10s"`
	}
	write := func(name, opsAddr string) string {
		path := filepath.Join(dir, name)
		text := fmt.Sprintf(`
revision = %d
[redis]
url = %q
%s
%s
[producer]
listen = %q
%s
[dispatcher]
listen = %q
concurrency = %d
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
%s
%s
%s
`, p.revision, p.redisURL, redisTimeout, p.redis, producerAddr, storeTimeout, opsAddr, cmp.Or(p.concurrency, 512), p.lease, bucketName, p.rate, p.capacity, cmp.Or(p.maxInFlight, 4000), p.bucket, p.retry, worker, p.more)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	opsAddr := redistest.FreeAddr(t)
	s.ops = "http://" + opsAddr
	s.config = write("producer.toml", opsAddr)
	s.producer = run(t, s.api, "producer", "serve", "--config", s.config)
	for i := range p.dispatchers {
		ops := redistest.FreeAddr(t)
		s.opsOf = append(s.opsOf, "http://"+ops)
		path := write(fmt.Sprintf("dispatcher%d.toml", i), ops)
		s.restart = append(s.restart, func() *process {
			command := []string{filepath.Join(programs, "dispatcher"), "run", "--config", path}
			if p.around != nil {
				command = p.around(i, ops, command)
			}
			return runCommand(t, "http://"+ops, exec.Command(command[0], command[1:]...))
		})
		s.dispatchers = append(s.dispatchers, s.restart[i]())
	}
	return s
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

// postBatch enqueues jobs, each JSON, in one request. As a client would, it sends them again as the same jobs where the answer is 503 or
// missing: on a busy machine Redis may stand still for longer than the producer waits.
func (s *system) postBatch(bucket string, lines []string) (status int, answer []byte) {
	s.t.Helper()
	body := strings.Join(lines, "\n") + "\n"
	await(s.t, 20*time.Second, "the producer takes a batch for "+bucket, func() bool {
		status, answer = s.request(http.MethodPost, "/v1/buckets/"+bucket+"/jobs/batch", "application/x-ndjson", strings.NewReader(body))
		return status != 0 && status != http.StatusServiceUnavailable && !bytes.Contains(answer, []byte(`"status":503`))
	})
	return status, answer
}

// postLines enqueues jobs, each JSON, in their order.
func (s *system) postLines(lines []string) {
	s.t.Helper()
	const size = 200
	for batch := range slices.Chunk(lines, size) {
		status, answer := s.postBatch(bucketName, batch)
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

// key is the name of a key of the bucket.
func (s *system) key(name string) string {
	return "tundish:{" + bucketName + "}:b:" + bucketName + ":" + name
}

// skip leaves a test out where the machine lacks something; in CI that is a
// failure.
func skip(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// onlyInCI leaves a test out where no CI runs it: it takes half a minute or more, and a shorter one holds what users are promised.
func onlyInCI(t *testing.T) {
	t.Helper()
	if os.Getenv("CI") == "" && !redistest.Soak {
		t.Skip("CI and a soak run this test; so does CI=true make test")
	}
}

// report prints the figures of a run.
func report(t *testing.T, rate int, r checker.Result) {
	t.Helper()
	t.Logf("%s; most in 1s %d, most in 100ms %d; %.1f %% of the rate",
		r, r.MostIn(time.Second), r.MostIn(100*time.Millisecond), 100*r.Rate/float64(rate))
}
