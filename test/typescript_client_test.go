package test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/faultproxy"
	"github.com/tundish-io/tundish/internal/npmtest"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// Payloads whose first reply is lost between the producer and its client, as clients/typescript/test/programs sends them.
const (
	lostJob   = "the reply to this job is lost"
	lostBatch = "the reply to this batch is lost"
)

// TestTypeScriptClient runs the client of clients/typescript under Node against real programs: a lost reply makes no second job, a 429 is obeyed,
// and deliveries of a dispatcher are verified, also with a clock that is an hour ahead.
func TestTypeScriptClient(t *testing.T) {
	harness.BesideOthers(t)
	node := compiledClient(t)
	arrived := &tally{of: map[string]int{}}
	s := start(t, redistest.Start(t), harness.Plan{Rate: 500, Dispatchers: 1, More: clientTables(t), Respond: arrived.answer})
	lossy, err := faultproxy.New(strings.TrimPrefix(s.API, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lossy.Close() })
	lost := map[string]<-chan struct{}{lostJob: lossy.DropReply(lostJob), lostBatch: lossy.DropReply(lostBatch)}
	environment := []string{
		"TUNDISH_URL=" + s.API, "TUNDISH_LOSSY_URL=http://" + lossy.Addr(), "TUNDISH_OPERATOR_URL=" + s.OpsOf[0],
		"TUNDISH_CLOSED_URL=http://" + redistest.FreeAddr(t),
		"TUNDISH_KEY=" + appKey, "TUNDISH_ADMIN_KEY=" + onCallKey,
	}
	programs := func(name string) string { return filepath.Join("build", "test", "programs", name) }

	t.Run("programs", func(t *testing.T) {
		nodeTests(t, node, 10, programs("programs.test.js"), environment)
		for payload, happened := range lost {
			select {
			case <-happened:
			default:
				t.Errorf("no reply was lost to the request with %q: this proves nothing", payload)
			}
		}
		harness.Await(t, 10*time.Second, "the bucket is empty", func() bool { return s.Unfinished() == 0 })
		for _, payload := range []string{lostJob, lostBatch, "and so for this job"} {
			if n := arrived.count(fmt.Sprintf("%q", payload)); n != 1 {
				t.Errorf("%q was delivered %d times, want once", payload, n)
			}
		}
	})
	t.Run("wrong clock", func(t *testing.T) {
		library, clock := harness.BuildClock(t)
		clock.Set(time.Hour)
		nodeTests(t, node, 2, programs("clock.test.js"), append(environment, "LD_PRELOAD="+library, "CLOCK_OFFSET="+clock.File.Name()))
	})
	t.Run("first example", func(t *testing.T) {
		out, err := node.Command(t, environment, filepath.Join("build", "test", "examples", "first.js")).CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), "order-42 queued 20") {
			t.Errorf("%v: %s", err, out)
		}
	})
}

const (
	appKey    = "tdk_of_an_application"
	onCallKey = "tdk_of_an_operator"
)

// clientTables are the keys, limits and further buckets of the configuration.
func clientTables(t *testing.T) string {
	t.Helper()
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(receiver.Close)
	var tables strings.Builder
	for name, key := range map[string][2]string{"app": {appKey, "enqueue"}, "on-call": {onCallKey, "admin"}} {
		sum := sha256.Sum256([]byte(key[0]))
		fmt.Fprintf(&tables, "[[keys]]\nname = %q\nsha256 = %q\nroles = [%q]\nbuckets = [\"*\"]\n", name, hex.EncodeToString(sum[:]), key[1])
	}
	tables.WriteString(harness.LimitTable("one-a-second", "token_bucket", "1/s"))
	for name, keys := range map[string]string{"limited": `limits = ["one-a-second"]`, "small": "capacity = 1", "customers": "[buckets.flow]\nkey = \"job\""} {
		fmt.Fprintf(&tables, "[[buckets]]\nname = %q\nrate = \"500/s\"\n%s\n[buckets.webhook]\nurl = %q\nallow_networks = [\"127.0.0.0/8\"]\n", name, keys, receiver.URL)
	}
	return tables.String()
}

// tally counts deliveries by their bodies.
type tally struct {
	mu sync.Mutex
	of map[string]int
}

func (c *tally) answer(w http.ResponseWriter, r *http.Request, _ string, _ int) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the dispatcher is gone
	}
	c.mu.Lock()
	c.of[string(body)]++
	c.mu.Unlock()
	_, _ = fmt.Fprintf(w, "answered: %s", body) // fails only when the dispatcher is gone
}

func (c *tally) count(body string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[body]
}

// compiledClient compiles the client and its tests.
func compiledClient(t *testing.T) npmtest.Program {
	t.Helper()
	node := npmtest.At(t, filepath.Join("clients", "typescript"))
	if out, err := node.Command(t, nil, filepath.Join("node_modules", "typescript", "bin", "tsc")).CombinedOutput(); err != nil {
		t.Fatalf("tsc: %v\n%s", err, out)
	}
	return node
}

// nodeTests runs a file of tests, and demands that as many as there are pass: a file that is empty passes by itself.
func nodeTests(t *testing.T, node npmtest.Program, want int, file string, env []string) {
	t.Helper()
	out, err := node.Command(t, env, "--test", "--test-reporter=tap", file).CombinedOutput()
	if err != nil || !strings.Contains(string(out), fmt.Sprintf("\n# pass %d\n", want)) || !strings.Contains(string(out), "\n# skipped 0\n") {
		t.Errorf("want %d tests that pass: %v\n%s", want, err, out)
	}
}
