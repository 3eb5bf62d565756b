package harness

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

// Plan describes the system that a test needs.
type Plan struct {
	Rate        int           // departures a second
	Dispatchers int           // processes
	Concurrency int           // deliveries of each at a time; 0 means 512
	Lease       time.Duration // 0 means 30 s
	Capacity    int           // 0 means 100,000
	MaxInFlight int           // 0 means 4,000
	Bucket      string        // more keys of the bucket, and its tables
	API         string        // the worker is http: more keys of its table
	More        string        // at the end of the configuration
	Asynq       string        // the worker is asynq: the keys of its table
	Hold        time.Duration // how long the receiver takes to respond
	Timeout     time.Duration // of a delivery; 0 means 90 % of the lease, and at most 10 s
	RedisURL    string        // the Redis of the programs, if it is not the server itself
	Redis       string        // more keys of the table redis
	Retry       string        // more keys of the bucket's table retry

	// around returns the command that runs a dispatcher, by its number, the address of its API and its own command; nil: its own.
	Around   func(i int, ops string, command []string) []string
	Revision int  // of the configuration
	Patient  bool // the producer waits 10 s for Redis, so that a busy machine is no failure of the store

	// respond, if set, replaces the 200 after hold.
	Respond func(w http.ResponseWriter, r *http.Request, id string, attempt int)
}

// System is the running programs around one Redis and one receiver.
type System struct {
	T           *testing.T
	Redis       *redistest.Server
	Inspector   *redis.Client
	History     *checker.History
	Receiver    *httptest.Server
	API         string // URL of the producer
	Producer    *Process
	Dispatchers []*Process
	Config      string
	Ops         string            // URL of a dispatcher with that configuration, if one is started
	OpsOf       []string          // URL of each dispatcher
	Restart     []func() *Process // starts a dispatcher with the configuration of the i-th
}

// BucketName is the bucket of a Plan.
const BucketName = "webhooks"

// Start starts the system of a plan, and waits until the programs are ready. They end with the test.
func Start(t *testing.T, server *redistest.Server, p Plan) *System {
	t.Helper()
	s := &System{T: t, Redis: server, Inspector: server.Client(), History: &checker.History{}}
	p.complete(server)
	s.Receiver = httptest.NewServer(&checker.Receiver{History: s.History, Respond: p.Respond})
	t.Cleanup(s.Receiver.Close)
	dir := t.TempDir()
	producer := redistest.FreeAddr(t)
	s.API = "http://" + producer
	write := func(name, ops string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(p.config(s.Receiver.URL, producer, ops)), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	opsAddr := redistest.FreeAddr(t)
	s.Ops = "http://" + opsAddr
	s.Config = write("producer.toml", opsAddr)
	s.Producer = Run(t, s.API, "producer", "serve", "--config", s.Config)
	for i := range p.Dispatchers {
		ops := redistest.FreeAddr(t)
		s.OpsOf = append(s.OpsOf, "http://"+ops)
		path := write(fmt.Sprintf("dispatcher%d.toml", i), ops)
		s.Restart = append(s.Restart, func() *Process {
			command := []string{filepath.Join(Programs, "dispatcher"), "run", "--config", path}
			if p.Around != nil {
				command = p.Around(i, ops, command)
			}
			return RunCommand(t, "http://"+ops, exec.Command(command[0], command[1:]...))
		})
		s.Dispatchers = append(s.Dispatchers, s.Restart[i]())
	}
	return s
}

// complete sets the defaults of a plan.
func (p *Plan) complete(server *redistest.Server) {
	if p.Respond == nil {
		hold := p.Hold
		p.Respond = func(_ http.ResponseWriter, r *http.Request, _ string, _ int) {
			select {
			case <-time.After(hold):
			case <-r.Context().Done():
			}
		}
	}
	p.RedisURL = cmp.Or(p.RedisURL, server.URL())
	p.Lease = cmp.Or(p.Lease, 30*time.Second)
	p.Capacity = cmp.Or(p.Capacity, 100_000)
	p.Concurrency = cmp.Or(p.Concurrency, 512)
	p.MaxInFlight = cmp.Or(p.MaxInFlight, 4000)
	p.Timeout = cmp.Or(p.Timeout, min(p.Lease*9/10, 10*time.Second))
}

// config is the configuration of a producer and a dispatcher, by their addresses.
func (p *Plan) config(receiver, producer, dispatcher string) string {
	bucket, address := p.Bucket, "[buckets.webhook]\nurl"
	if p.API != "" {
		address, bucket = "[buckets.http]\nbase_url", "worker = \"http\"\n"+bucket
	}
	worker := fmt.Sprintf("%s = %q\ntimeout = %q\nallow_networks = [\"127.0.0.0/8\"]\n%s", address, receiver, p.Timeout, p.API)
	if p.Asynq != "" {
		worker, bucket = "[buckets.asynq]\n"+p.Asynq, "worker = \"asynq\"\n"+bucket
	}
	var redisTimeout, storeTimeout string
	if p.Patient {
		redisTimeout, storeTimeout = `timeout = "10s"`, `store_timeout = "10s"`
	}
	return fmt.Sprintf(`
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
`, p.Revision, p.RedisURL, redisTimeout, p.Redis, producer, storeTimeout, dispatcher, p.Concurrency, p.Lease, BucketName, p.Rate, p.Capacity,
		p.MaxInFlight, bucket, p.Retry, worker, p.More)
}

// Post enqueues jobs id by id through the producer, in batches, and logs the results.
func (s *System) Post(prefix string, count int) {
	s.T.Helper()
	s.PostAs(prefix, count, "")
}

// PostAs is post of jobs with more fields: JSON, each after a comma.
func (s *System) PostAs(prefix string, count int, fields string) {
	s.T.Helper()
	lines := make([]string, count)
	for i := range lines {
		lines[i] = fmt.Sprintf(`{"id":"%s-%d","payload":{"n":%d}%s}`, prefix, i, i, fields)
	}
	s.PostLines(lines)
}

// PostBatch enqueues jobs, each JSON, in one request. As a client would, it repeats the same jobs after a 503 or without a response: on a busy machine
// Redis may stand still for longer than the producer waits.
func (s *System) PostBatch(bucket string, lines []string) (status int, answer []byte) {
	s.T.Helper()
	body := strings.Join(lines, "\n") + "\n"
	Await(s.T, 20*time.Second, "the producer takes a batch for "+bucket, func() bool {
		status, answer = s.Request(http.MethodPost, "/v1/buckets/"+bucket+"/jobs/batch", "application/x-ndjson", strings.NewReader(body))
		return status != 0 && status != http.StatusServiceUnavailable && !bytes.Contains(answer, []byte(`"status":503`))
	})
	return status, answer
}

// PostLines enqueues jobs, each JSON, in their order.
func (s *System) PostLines(lines []string) {
	s.T.Helper()
	const size = 200
	for batch := range slices.Chunk(lines, size) {
		status, answer := s.PostBatch(BucketName, batch)
		if status != http.StatusOK {
			s.T.Fatalf("batch: %d %s", status, answer)
		}
		var results struct {
			Results []struct {
				Status int    `json:"status"`
				ID     string `json:"id"`
			} `json:"results"`
		}
		if err := json.Unmarshal(answer, &results); err != nil {
			s.T.Fatal(err)
		}
		for _, r := range results.Results {
			if r.Status != http.StatusAccepted {
				s.T.Fatalf("job %s: %d", r.ID, r.Status)
			}
			s.History.Admitted(r.ID, time.Now())
		}
	}
}

// Send enqueues one job and returns the status, 0 without a response.
func (s *System) Send(id string) int {
	status, _ := s.Request(http.MethodPost, "/v1/buckets/"+BucketName+"/jobs", "application/json",
		strings.NewReader(fmt.Sprintf(`{"id":%q,"payload":{}}`, id)))
	switch status {
	case http.StatusAccepted:
		s.History.Admitted(id, time.Now())
	default:
		s.History.Unknown(id)
	}
	return status
}

// Request sends the producer a request and returns the status and the body of the response; status 0 if there was none.
func (s *System) Request(method, path, contentType string, body io.Reader) (int, []byte) {
	request, err := http.NewRequestWithContext(s.T.Context(), method, s.API+path, body)
	if err != nil {
		s.T.Fatal(err)
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

// AwaitDelivered waits until every admitted job has arrived.
func (s *System) AwaitDelivered(limit time.Duration) checker.Result {
	s.T.Helper()
	var result checker.Result
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(Patience * limit)
	for {
		result = s.History.Check()
		if len(result.Lost) == 0 {
			return result
		}
		select {
		case <-tick.C:
		case <-deadline:
			s.T.Fatalf("%d of %d jobs did not arrive within %s, such as %v", len(result.Lost), result.Admitted, Patience*limit,
				result.Lost[:min(5, len(result.Lost))])
		}
	}
}

// Unfinished returns the number of the bucket's jobs that Redis still holds.
func (s *System) Unfinished() int64 {
	n, err := s.Inspector.HLen(s.T.Context(), "tundish:{"+BucketName+"}:b:"+BucketName+":body").Result()
	if err != nil {
		return -1
	}
	return n
}

// Key is the name of a key of the bucket.
func (s *System) Key(name string) string {
	return "tundish:{" + BucketName + "}:b:" + BucketName + ":" + name
}

// Skip skips a test if the machine lacks something; in CI that is a failure.
func Skip(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// OnlyInCI skips a test outside of CI: it takes half a minute or more, and a shorter test covers what users are promised.
func OnlyInCI(t *testing.T) {
	t.Helper()
	if os.Getenv("CI") == "" && !redistest.Soak {
		t.Skip("CI and a soak run this test; so does CI=true make test")
	}
}

// Report prints the figures of a run.
func Report(t *testing.T, rate int, r checker.Result) {
	t.Helper()
	t.Logf("%s; most in 1s %d, most in 100ms %d; %.1f %% of the rate",
		r, r.MostIn(time.Second), r.MostIn(100*time.Millisecond), 100*r.Rate/float64(rate))
}
