package test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// waiting is a client that waits for its answer.
type waiting struct {
	way, id string // the API sees id, which the request has as its Idempotency-Key

	status int
	code   string // of a problem
	job    string
	state  string // in an answer that is a job
	text   string
}

// waits sends the request of a client in one of the ways in which a client may wait, and reads its answer.
func (s *system) waits(ctx context.Context, c *waiting) {
	path, body, headers := "/v1/proxy/"+c.way+"/v1/x", `{"model":"m","max_tokens":5,"messages":[]}`, http.Header{"X-Client": {c.id}, "Idempotency-Key": {c.id}}
	if c.way == "queued" {
		path, body, headers = "/v1/buckets/queued/jobs", fmt.Sprintf(`{"id":%q,"path":"v1/x","payload":{},"headers":{"X-Client":%q}}`, c.id, c.id), http.Header{"Prefer": {"wait=2"}}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.API+path, strings.NewReader(body))
	if err != nil {
		s.T.Error(err)
		return
	}
	request.Header = headers
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.T.Errorf("%s: %v", c.id, err)
		return
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	var answer struct {
		ID, Code, State string
		Error           struct{ Code string }
	}
	_ = json.Unmarshal(text, &answer) // that of the API is no JSON
	c.status, c.text, c.code, c.state = response.StatusCode, string(text), cmp.Or(answer.Code, answer.Error.Code), answer.State
	c.job = cmp.Or(response.Header.Get("Tundish-Job"), answer.ID)
}

// stateOf is the state of the job of a client, "" of one that is not known.
func (s *system) stateOf(c *waiting) string {
	_, text := s.Request(http.MethodGet, "/v1/buckets/"+c.way+"/jobs/"+c.job, "", nil)
	var job struct{ State string }
	if err := json.Unmarshal(text, &job); err != nil {
		s.T.Errorf("%s: %v: %s", c.id, err, text)
	}
	return job.State
}

// TestRedisFreezesWhileClientsWait: Redis stands still while clients wait for their answers, in the three ways in which they may. While it does, each gets
// its answer, or learns by name that there is none. Afterwards each request was sent once at most, and is in one place. A client that was answered 503
// meanwhile asks again, and its request is sent once.
func TestRedisFreezesWhileClientsWait(t *testing.T) {
	harness.BesideOthers(t)
	const clients = 6
	ways := []string{"queued", "shaped", "model"}
	var mu sync.Mutex
	sent := map[string]int{}
	count := func(prefix string) (n int) {
		mu.Lock()
		defer mu.Unlock()
		for id, times := range sent {
			if strings.HasPrefix(id, prefix) {
				n += times
			}
		}
		return n
	}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		sent[r.Header.Get("X-Client")]++
		mu.Unlock()
		_, _ = io.WriteString(w, "good")
	}))
	t.Cleanup(api.Close)
	var tables strings.Builder
	for way, worker := range map[string]string{"queued": "http", "shaped": "http", "model": "llm"} {
		fmt.Fprintf(&tables, "[[buckets]]\nname = %q\nrate = \"4/s\"\nworker = %q\n[buckets.%s]\nbase_url = %q\nallow_networks = [\"127.0.0.0/8\"]\n", way, worker, worker, api.URL)
		switch {
		case worker == "llm":
			tables.WriteString("api = \"openai\"\n")
			fallthrough
		case way == "shaped":
			tables.WriteString("serve_proxy = true\nproxy_timeout = \"2s\"\n")
		}
	}
	server := redistest.Start(t)
	s := start(t, server, harness.Plan{Rate: 4, Dispatchers: 1, More: tables.String()})
	var all []*waiting
	var answered sync.WaitGroup
	ask := func(way, id string) {
		c := &waiting{way: way, id: id}
		all = append(all, c)
		answered.Go(func() { s.waits(t.Context(), c) })
	}
	for _, way := range ways {
		for n := range clients {
			ask(way, fmt.Sprint(way, "-", n))
		}
	}
	harness.Await(t, 10*time.Second, "each way has had a response", func() bool {
		return count("queued") > 0 && count("shaped") > 0 && count("model") > 0
	})
	server.Stop()
	for _, way := range ways {
		ask(way, way+"-late")
	}
	answered.Wait() // Redis stands still until then
	server.Cont()

	for _, c := range all {
		left := int64(-1)
		harness.Await(t, 20*time.Second, "nothing is left of "+c.way, func() bool {
			left = s.Inspector.HLen(t.Context(), "tundish:{"+c.way+"}:b:"+c.way+":body").Val()
			return left == s.Inspector.ZCard(t.Context(), "tundish:{"+c.way+"}:b:"+c.way+":dead").Val()
		})
		n, ended := count(c.id), s.stateOf(c)
		t.Logf("%s: answered %d %s%s; sent %d times, %s now; %d dead letters", c.id, c.status, c.code, c.state, n, ended, left)
		if isSent := ended == "done" || ended == "dropped"; isSent != (n == 1) && ended != "" {
			t.Errorf("%s: sent %d times, and %s", c.id, n, ended)
		}
		if c.status == http.StatusServiceUnavailable && c.code == "store-unavailable" {
			s.waits(t.Context(), c)
			if n = count(c.id); c.status != http.StatusOK || n != 1 {
				t.Errorf("%s again: sent %d times, answered %d %s", c.id, n, c.status, c.text)
			}
			continue
		}
		isNamed := c.status == http.StatusGatewayTimeout && c.code == "not-in-time" ||
			c.status == http.StatusAccepted && c.way == "queued" && c.job == c.id
		isGood := c.status == http.StatusOK && n == 1
		if n > 1 || !isNamed && !isGood {
			t.Errorf("%s: sent %d times, answered %d %s", c.id, n, c.status, c.text)
		}
		if c.way == "shaped" && c.code != "" && !strings.Contains(c.text, "Redis does not answer") {
			t.Errorf("%s: the answer does not name the reason: %s", c.id, c.text)
		}
	}
}
