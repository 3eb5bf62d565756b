package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
)

// running is a daemon in the background. Its log is stderr.
type running struct {
	stop context.CancelFunc
	done chan int

	mu  sync.Mutex
	log bytes.Buffer
}

func (r *running) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(p)
}

func (r *running) said(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Contains(r.log.String(), text)
}

// end stops the daemon and returns its exit code.
func (r *running) end() int {
	r.stop()
	return <-r.done
}

func start(t *testing.T, env []string, words string) *running {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r := &running{stop: stop, done: make(chan int, 1)}
	args := strings.Fields(words)
	go func() { r.done <- program(args[0])(ctx, args[1:], env, strings.NewReader(""), io.Discard, r) }()
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			r.mu.Lock()
			defer r.mu.Unlock()
			t.Logf("the log of %s:\n%s", words, r.log.String())
		}
	})
	return r
}

// status asks for a page; 0 means that nobody answers.
func status(t *testing.T, addr, path string) int {
	t.Helper()
	req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+path, http.NoBody))(t)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

func (r *running) ready(t *testing.T, addr string) {
	t.Helper()
	eventually(t, "ready", func() bool { return status(t, addr, "/readyz") == http.StatusOK })
}

// receiver counts the deliveries.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []string
}

func receive(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.bodies = append(r.bodies, string(body))
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.bodies)
}

// plan is a configuration with addresses of its own.
type plan struct {
	env           []string
	api, ops, mem string
}

func newPlan(t *testing.T, redisURL, bucket string) plan {
	t.Helper()
	p := plan{api: redistest.FreeAddr(t), ops: redistest.FreeAddr(t), mem: redistest.FreeAddr(t)}
	p.env = writeConfig(t, fmt.Sprintf(`
[redis]
url = %q
timeout = "10s"
embedded_listen = %q
[producer]
listen = %q
store_timeout = "10s"
[dispatcher]
listen = %q
shutdown_timeout = "2s"
[[buckets]]
name = "webhooks"
%s
[buckets.webhook]
allow_networks = ["127.0.0.0/8"]
`, redisURL, p.mem, p.api, p.ops, bucket))
	return p
}

func TestRunWithTheEmbeddedStore(t *testing.T) {
	t.Parallel()
	p := newPlan(t, "embedded", `rate = "200/s"`)
	to := receive(t)
	daemon := start(t, p.env, "dispatcher run")
	daemon.ready(t, p.ops)
	daemon.ready(t, p.api)

	runArgs(t.Context(), p.env, "", "producer", "send", "webhooks", `{"hello":"world"}`, "--url", to.URL, "--id", "first").
		want(t, 0, "queued    first  position 0  leaves ")
	eventually(t, "the first is delivered", func() bool { return to.count() == 1 })
	must.Equal(t, to.bodies[0], `{"hello":"world"}`, "delivered")
	runArgs(t.Context(), p.env, "", "producer", "send", "webhooks", `{"hello":"world"}`, "--url", to.URL, "--id", "first", "--json").
		want(t, 0, `"duplicate":true`)
	command(t.Context(), p.env, "1\n2\n3\n", "producer send webhooks --url "+to.URL).want(t, 0, "3 jobs in, 0 refused, 0 failed")
	command(t.Context(), p.env, "", "producer send webhooks 4 --delay 1h --id later --url "+to.URL).want(t, 0, "scheduled later  leaves in 1h")
	command(t.Context(), p.env, "", "producer load webhooks --jobs 20 --batch 10 --concurrency 2 --json --url "+to.URL).want(t, 0, `"admitted": 20`)
	eventually(t, "all are delivered", func() bool { return to.count() == 24 })

	command(t.Context(), p.env, "", "dispatcher bucket list").want(t, 0, "webhooks", "200/s")
	command(t.Context(), p.env, "", "dispatcher job cancel webhooks later").want(t, 0, "cancelled later")
	command(t.Context(), p.env, "", "producer send webhooks 4 --delay 1h --id later --url "+to.URL).want(t, 1, "id-ended", "was cancelled", "use another id")
	command(t.Context(), p.env, "", "dispatcher doctor").want(t, 0, "[warn]  redis", "memory only", "every job is in its place")
	command(t.Context(), p.env, "1\nbad\n2\n", "producer send webhooks --url "+to.URL).want(t, 1, "refused  invalid: the line is not JSON", "2 jobs in, 0 refused, 1 failed")
	command(t.Context(), p.env, "", "producer send nosuch 1").want(t, 4, "unknown-bucket")
	command(t.Context(), p.env, "", "producer send webhooks 1 --method BREW").want(t, 2, "method")
	command(t.Context(), p.env, "", "producer load nosuch --jobs 3").want(t, 4, "404 unknown-bucket", `producer: unknown-bucket: bucket "nosuch" is not configured at http://`, ": is the name right, and --server?")
	wantDocumented(t, p.ops, p.api)

	must.Equal(t, daemon.end(), 0, "the exit code is")
	for _, text := range []string{
		"ALL JOBS ARE GONE", `"buckets":"webhooks at 200/s"`, "http://" + p.api, "http://" + p.ops,
		`"msg":"stopped","admitted":27,"departed":2`,
	} {
		if !daemon.said(text) {
			t.Errorf("the log does not say %q", text)
		}
	}
}

func TestProducerAndDispatcherShareARedis(t *testing.T) {
	t.Parallel()
	p := newPlan(t, redistest.Start(t).URL(), "rate = \"1/h\"\ncapacity = 2")
	dispatcher := start(t, p.env, "dispatcher run")
	producer := start(t, p.env, "producer serve")
	producer.ready(t, p.api)
	dispatcher.ready(t, p.ops)
	if dispatcher.said("ALL JOBS") || !dispatcher.said("appendonly is no") || !producer.said("appendonly is no") {
		t.Error("the logs do not say what is wrong with this very Redis, and only that")
	}

	command(t.Context(), p.env, "1\n2\n3\n", "producer send webhooks --url http://127.0.0.1:1/").
		want(t, 3, "refused  bucket-full: bucket \"webhooks\" is full (2/2): retry in", "2 jobs in, 1 refused, 0 failed")
	refused := command(t.Context(), p.env, "", "producer send webhooks 4 --url http://127.0.0.1:1/")
	refused.want(t, 3, "producer: bucket-full: ", "retry in")
	must.Equal(t, refused.out, "", "stdout says")
	command(t.Context(), p.env, "", "producer send webhooks 4 --json --url http://127.0.0.1:1/").want(t, 3, `"retry_after":`)
	command(t.Context(), p.env, "", "producer load webhooks --jobs 5 --url http://127.0.0.1:1/").want(t, 0, "bucket-full", "admitted")

	if code := producer.end(); code != 0 || !producer.said(`"msg":"stopped","admitted":2`) {
		t.Errorf("the producer's exit code is %d", code)
	}
	if code := dispatcher.end(); code != 0 || !dispatcher.said(`"msg":"stopped"`) {
		t.Errorf("the dispatcher's exit code is %d", code)
	}
}

func TestDaemonsWaitForRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Kill()
	p := newPlan(t, server.URL(), `rate = "50/s"`)
	dispatcher, producer := start(t, p.env, "dispatcher run"), start(t, p.env, "producer serve")
	for _, addr := range []string{p.api, p.ops} {
		eventually(t, "up, and not ready", func() bool { return status(t, addr, "/readyz") == http.StatusServiceUnavailable })
	}
	eventually(t, "said", func() bool {
		return producer.said("redis does not answer yet") && dispatcher.said("redis does not answer yet") &&
			producer.said("producer has started: it takes jobs in as soon as redis answers") && dispatcher.said("dispatcher has started: it lets jobs out as soon as redis answers")
	})
	if producer.said(`"msg":"producer takes jobs in"`) || dispatcher.said(`"msg":"dispatcher lets jobs out"`) {
		t.Error("it is said that jobs go in and out, without Redis")
	}
	command(t.Context(), p.env, "", "producer send webhooks 1 --id x --url http://127.0.0.1:1/").want(t, 5, "store-unavailable", "--id x")
	must.OK(t, server.Restart())
	producer.ready(t, p.api)
	dispatcher.ready(t, p.ops)
	eventually(t, "Redis is examined once it answers", func() bool {
		const finding = "maxmemory is not set"
		return producer.said(finding) && dispatcher.said(finding)
	})
	must.Equal(t, [2]int{producer.end(), dispatcher.end()}, [2]int{}, "the exit codes are")
}

func TestAddressTaken(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]func(plan) string{
		"redis.embedded_listen": func(p plan) string { return p.mem },
		"producer.listen":       func(p plan) string { return p.api },
		"dispatcher.listen":     func(p plan) string { return p.ops },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlan(t, "embedded", `rate = "50/s"`)
			listener := must.Get(net.Listen("tcp", address(p)))(t)
			defer listener.Close()
			command(t.Context(), p.env, "", "dispatcher run").want(t, 1, name, address(p)+" is taken")
		})
	}
}

func TestDemo(t *testing.T) {
	t.Parallel()
	command(t.Context(), nil, "", "dispatcher demo --rate 20 --seconds 1 --json").want(t, 0, `"kept": true`)
	cancelled, stop := context.WithCancel(t.Context())
	stop()
	if r := command(cancelled, nil, "", "dispatcher demo"); r.code > 1 {
		t.Errorf("interrupted, the exit code is %d: %s", r.code, r.err)
	}
}
