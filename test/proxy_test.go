package test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/checker"
	"github.com/tundish-io/tundish/internal/npmtest"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

const (
	ownKey    = "tdk_of_the_client_of_the_proxy"
	vendorKey = "ghp_of_the_vendor"
)

// keyTable is a table of the configuration for a key that may enqueue.
func keyTable(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return fmt.Sprintf("[[keys]]\nname = \"client\"\nsha256 = %q\nroles = [\"enqueue\"]\nbuckets = [\"*\"]\n", hex.EncodeToString(sum[:]))
}

// client is a script that calls an API with a package of npm; the command runs it with more variables of the environment.
func client(t *testing.T, script string) (command func(env ...string) *exec.Cmd) {
	t.Helper()
	node := npmtest.Clients(t)
	text, err := os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	return func(env ...string) *exec.Cmd { return node.Script(t, bytes.NewReader(text), env...) }
}

// TestProxyWithAnUnchangedClient: 20 clients of GitHub's API, as its own library makes them, share a rate by a change of their base URL and key.
// Each gets its own answers, and the API sees the rate, and its own key.
func TestProxyWithAnUnchangedClient(t *testing.T) {
	const rate, clients, each = 20, 20, 3
	script := client(t, filepath.Join("testdata", "octokit.mjs"))
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		var mu sync.Mutex
		var wrong []string
		var arrivals checker.History
		s := start(t, redistest.Start(t), harness.Plan{
			Rate: rate, Dispatchers: 2,
			API: fmt.Sprintf("serve_proxy = true\nauth.bearer = %q\n%s", vendorKey, keyTable(ownKey)),
			Respond: func(w http.ResponseWriter, r *http.Request, id string, attempt int) {
				arrivals.Delivered(id, attempt, time.Now())
				if h := r.Header; h.Get("Authorization") != "Bearer "+vendorKey || !strings.HasPrefix(h.Get("User-Agent"), "their-client/1") || h.Get("Tundish-Key") != "" {
					mu.Lock()
					wrong = append(wrong, fmt.Sprint(r.Method, r.URL, h))
					mu.Unlock()
				}
				mock(w, r)
			}})
		cmd := script("CLIENTS="+fmt.Sprint(clients), "KEY="+ownKey, "BASE_URL="+s.API+"/v1/proxy/"+harness.BucketName)
		began := time.Now()
		out, err := cmd.Output()
		took := time.Since(began)
		if err != nil {
			t.Fatalf("%v: %s", err, cmd.Stderr)
		}
		var answers []struct {
			N, Status, Missing int
			Title, Query       string
		}
		if err := json.Unmarshal(out, &answers); err != nil || len(answers) != clients {
			t.Fatalf("%v: %s", err, out)
		}
		for n, a := range answers {
			if a.N != n || a.Status != http.StatusCreated || a.Title != fmt.Sprint("from ", n) || a.Query != fmt.Sprintf("client:%d in:name", n) || a.Missing != http.StatusNotFound {
				t.Errorf("client %d was answered %+v", n, a)
			}
		}
		r := arrivals.Check()
		t.Logf("%d calls of %d clients in %s; most in 1s %d, most in 100ms %d", r.Delivered, clients, took.Round(time.Millisecond), r.MostIn(time.Second), r.MostIn(100*time.Millisecond))
		if r.Delivered != clients*each || len(wrong) > 0 {
			t.Errorf("%d calls; not as they should be: %v", r.Delivered, wrong)
		}
		s.holdsNo(ownKey, vendorKey)
		return stall.Crowded(r.MostIn, rate, harness.Steady, time.Second, 100*time.Millisecond)
	})
}

// mock answers as the API does.
func mock(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	answer := map[string]any{}
	switch {
	case r.Method == http.MethodPost:
		_ = json.NewDecoder(r.Body).Decode(&answer) // an answer without a title fails the test
		answer["number"] = 7
		w.WriteHeader(http.StatusCreated)
	case strings.HasSuffix(r.URL.Path, "/404"):
		answer["message"] = "Not Found"
		w.WriteHeader(http.StatusNotFound)
	default:
		answer["query"] = r.URL.Query().Get("q")
	}
	_ = json.NewEncoder(w).Encode(answer) // fails only when the client is gone
}

// holdsNo demands that no secret is in Redis, nor in what a dispatcher has printed.
func (s *system) holdsNo(secrets ...string) {
	s.T.Helper()
	ctx := s.T.Context()
	seen := 0
	for _, key := range s.Inspector.Keys(ctx, "*").Val() {
		var texts []string
		switch s.Inspector.Type(ctx, key).Val() {
		case "hash":
			for field, value := range s.Inspector.HGetAll(ctx, key).Val() {
				texts = append(texts, field, value)
			}
		case "list":
			texts = s.Inspector.LRange(ctx, key, 0, -1).Val()
		case "zset":
			texts = s.Inspector.ZRange(ctx, key, 0, -1).Val()
		case "string":
			texts = []string{s.Inspector.Get(ctx, key).Val()}
		}
		seen += len(texts)
		for _, secret := range secrets {
			if strings.Contains(strings.Join(append(texts, key), "\n"), secret) {
				s.T.Errorf("%s holds %q", key, secret)
			}
		}
	}
	if seen == 0 {
		s.T.Error("Redis holds nothing: this proves nothing")
	}
	for _, p := range append(s.Dispatchers, s.Producer) {
		for _, secret := range secrets {
			if strings.Contains(p.Output.String(), secret) {
				s.T.Errorf("%s has logged %q", p.Cmd.Path, secret)
			}
		}
	}
}
