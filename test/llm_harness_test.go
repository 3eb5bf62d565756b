package test

import (
	"cmp"
	"encoding/json"
	"errors"
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

	"github.com/tundish-io/tundish/internal/faultproxy"
	"github.com/tundish-io/tundish/internal/llmprovider"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// model is a bucket with the worker llm, and the provider that its jobs call.
type model struct {
	name     string
	api      llmprovider.API       // "" is OpenAI
	provider *llmprovider.Provider // the buckets of a pool have one together
	rate     string                // "" is 100/s
	keys     string                // more keys of the bucket
	retry    string                // more keys of its table retry
	llm      string                // more keys of its table llm
	tables   string                // more tables
}

// llmPlan is what a test asks of the system.
type llmPlan struct {
	models      []model
	pools       string // tables
	dispatchers int
	lease       time.Duration // 0 means 3 s
	isNear      bool          // Redis is beside the programs
	server      *redistest.Server
}

// llmSystem is the running programs around one Redis, which is 50 ms away from them, and some providers.
type llmSystem struct {
	t           *testing.T
	inspector   *redis.Client
	models      map[string]model
	producers   []string // URLs
	producing   []*harness.Process
	providers   map[string]string // URLs by bucket
	dispatchers []*harness.Process
	restart     []func() *harness.Process // starts a dispatcher with the configuration of the i-th
	ops         []string                  // URL of each dispatcher
	config      string
	posted      map[string][]string // ids by bucket
	batches     int
}

func startLLM(t *testing.T, p llmPlan) *llmSystem {
	t.Helper()
	s := &llmSystem{t: t, inspector: p.server.Client(), models: map[string]model{}, providers: map[string]string{}, posted: map[string][]string{}}
	proxy, err := faultproxy.New(p.server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	if !p.isNear {
		proxy.SetDelay(50 * time.Millisecond)
	}
	tables := p.pools
	for _, m := range p.models {
		s.models[m.name] = m
		server := httptest.NewServer(m.provider)
		t.Cleanup(server.Close)
		s.providers[m.name] = server.URL
		tables += fmt.Sprintf(`
[[buckets]]
name = %q
rate = %q
worker = "llm"
%s
[buckets.retry]
min_backoff = "100ms"
max_backoff = "1s"
%s
[buckets.llm]
api = %q
base_url = %q
allow_networks = ["127.0.0.0/8"]
%s
%s
`, m.name, cmp.Or(m.rate, "100/s"), m.keys, m.retry, cmp.Or(m.api, llmprovider.OpenAI), server.URL, m.llm, m.tables)
	}
	redisURL := "redis://" + proxy.Addr()
	s.producers, s.producing = harness.RunProducers(t, redisURL, 2, tables)
	for i := range p.dispatchers {
		address, path := redistest.FreeAddr(t), filepath.Join(t.TempDir(), fmt.Sprintf("dispatcher%d.toml", i))
		text := fmt.Sprintf("[redis]\nurl = %q\n[dispatcher]\nlisten = %q\nlease = %q\n%s", redisURL, address, cmp.Or(p.lease, 3*time.Second), tables)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s.config = path
		s.ops = append(s.ops, "http://"+address)
		s.restart = append(s.restart, func() *harness.Process {
			return harness.Run(t, "http://"+address, "dispatcher", "run", "--config", path)
		})
		s.dispatchers = append(s.dispatchers, s.restart[i]())
	}
	return s
}

// inputTokens is the input of a call, as the providers count it: a quarter of its bytes of text.
const inputTokens = 100

// call is a job: a request with a maximum of output, 0 none. fields are more fields of the job, JSON, each after a comma.
func (m *model) call(id string, maxTokens int, fields string) string {
	path, maximum := "v1/chat/completions", ""
	if m.api == llmprovider.Anthropic {
		path = "v1/messages"
	}
	if maxTokens > 0 {
		maximum = fmt.Sprintf(`,"max_tokens":%d`, maxTokens)
	}
	return fmt.Sprintf(`{"id":%q,"path":%q,"payload":{"model":"m","messages":[{"role":"user","content":%q}]%s}%s}`,
		id, path, strings.Repeat("word", inputTokens), maximum, fields)
}

// tokensOf are those of the n-th call of a test, its input and its max_tokens: 200 to 4,000, large and small ones in turn, and 2,100 on average.
func tokensOf(n int) int { return 200 + n*2351%3801 }

// post enqueues calls, each JSON, through the two producers in turn. A batch of which some were answered 503, because the machine stood
// still, is sent again: the same id is the same job.
func (s *llmSystem) post(bucket string, calls ...string) {
	s.t.Helper()
	for lines := range slices.Chunk(calls, 50) {
		producer := s.producers[s.batches%len(s.producers)]
		s.batches++
		var ids []string
		harness.Await(s.t, 20*time.Second, "the producer takes calls of "+bucket, func() bool {
			ids = nil
			answer := s.ask(http.MethodPost, producer+"/v1/buckets/"+bucket+"/jobs/batch", "application/x-ndjson", strings.Join(lines, "\n")+"\n")
			var batch struct {
				Results []struct {
					Status int    `json:"status"`
					ID     string `json:"id"`
				} `json:"results"`
			}
			if err := json.Unmarshal(answer, &batch); err != nil || len(batch.Results) != len(lines) {
				s.t.Fatalf("batch: %.300s, %v", answer, err)
			}
			for _, r := range batch.Results {
				switch r.Status {
				case http.StatusAccepted:
					ids = append(ids, r.ID)
				case http.StatusServiceUnavailable:
				default:
					s.t.Fatalf("job %s: %d of %.300s", r.ID, r.Status, answer)
				}
			}
			return len(ids) == len(lines)
		})
		s.posted[bucket] = append(s.posted[bucket], ids...)
	}
}

// ask makes a request of an API, and makes it again while Redis is not there for it. Any other answer than 200 fails the test.
func (s *llmSystem) ask(method, url, contentType, body string) (answer []byte) {
	s.t.Helper()
	harness.Await(s.t, 20*time.Second, method+" "+url, func() bool {
		request, err := http.NewRequestWithContext(s.t.Context(), method, url, strings.NewReader(body))
		if err != nil {
			s.t.Fatal(err)
		}
		request.Header.Set("Content-Type", contentType)
		request.Header.Set(flowHeader, "queued")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			s.t.Fatal(err)
		}
		defer response.Body.Close()
		if answer, err = io.ReadAll(response.Body); err != nil {
			s.t.Fatal(err)
		}
		if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusServiceUnavailable {
			s.t.Fatalf("%s %s: %d %.300s", method, url, response.StatusCode, answer)
		}
		return response.StatusCode == http.StatusOK
	})
	return answer
}

// operate runs `dispatcher …`, and runs it again where it did not reach Redis in time.
func (s *llmSystem) operate(args ...string) {
	s.t.Helper()
	const unreachable = 5 // the exit code
	args = append(args, "--config", s.config)
	harness.Await(s.t, 20*time.Second, fmt.Sprintf("dispatcher %v", args), func() bool {
		out, err := exec.CommandContext(s.t.Context(), filepath.Join(harness.Programs, "dispatcher"), args...).CombinedOutput()
		if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() != unreachable) {
			s.t.Fatalf("dispatcher %v: %v\n%s", args, err, out)
		}
		return err == nil
	})
}

// llmNumbers are those of a bucket, or of a pool.
type llmNumbers struct {
	Unfinished int64 `json:"unfinished"`
	InFlight   int64 `json:"in_flight"`
	Dead       int64 `json:"dead"`
	Budgets    []struct {
		Charged int64 `json:"charged"`
		Open    int64 `json:"open"`
	} `json:"budget_use"`
}

// numbers are those of a bucket, as the last dispatcher tells them.
func (s *llmSystem) numbers(bucket string) (n llmNumbers) {
	s.t.Helper()
	return s.numbersAt("/v1/buckets/" + bucket)
}

// numbersAt are those of a bucket or a pool.
func (s *llmSystem) numbersAt(path string) (n llmNumbers) {
	s.t.Helper()
	answer := s.ask(http.MethodGet, s.ops[len(s.ops)-1]+path, "", "")
	if err := json.Unmarshal(answer, &n); err != nil {
		s.t.Fatalf("%s: %s, %v", path, answer, err)
	}
	return n
}

// awaitAnswered waits until all calls of all buckets are answered, and nothing of them is left.
func (s *llmSystem) awaitAnswered(limit time.Duration) {
	s.t.Helper()
	deadline := time.Now().Add(harness.Patience * limit)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for bucket, ids := range s.posted {
		for {
			answered, missing := s.models[bucket].provider.Log().Answered(), 0
			for _, id := range ids {
				if answered[id] == 0 {
					missing++
				}
			}
			n := s.numbers(bucket)
			if missing == 0 && n.Unfinished == 0 {
				break
			}
			if n.Dead > 0 || time.Now().After(deadline) {
				dead := s.ask(http.MethodGet, s.ops[len(s.ops)-1]+"/v1/buckets/"+bucket+"/dead", "", "")
				s.t.Fatalf("bucket %s: %d of %d calls are not answered within %s: %+v; dead are %.500s", bucket, missing, len(ids), harness.Patience*limit, n, dead)
			}
			<-tick.C
		}
	}
}
