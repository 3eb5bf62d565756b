package test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/faultproxy"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/test/harness"
)

// told is who hears the outcomes of jobs.
type told struct {
	mu       sync.Mutex
	by       map[string]map[string]int // job -> id of a callback -> how often it came
	outcomes map[string]string         // job -> type of the last one
	bad      []string
}

func (w *told) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	var body struct {
		Type string `json:"type"`
		Data struct {
			ID     string `json:"id"`
			Status int    `json:"status"`
			Cause  string `json:"cause"`
			Body   string `json:"body"`
		} `json:"data"`
	}
	err := json.NewDecoder(r.Body).Decode(&body)
	w.mu.Lock()
	defer w.mu.Unlock()
	d := body.Data
	isDead := strings.HasPrefix(d.ID, "gone") || d.Cause == "poison"
	if err != nil || (r.URL.Path == "/dead") != isDead || (body.Type == "job.dead") != isDead || d.Cause != "poison" && d.Body != "answer to "+d.ID {
		w.bad = append(w.bad, fmt.Sprintf("%s %+v, %v", r.URL.Path, body, err))
	}
	if w.by[d.ID] == nil {
		w.by[d.ID] = map[string]int{}
	}
	w.by[d.ID][r.Header.Get("webhook-id")]++
	w.outcomes[d.ID] = body.Type
}

func (w *told) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.by)
}

// TestCallbacksSurviveKills: kill -9 of the dispatcher after each step by which a callback comes to its receiver, when Redis has
// carried the step out and the dispatcher has not heard of it. Each job is told, by one callback. One that was on its way when
// its dispatcher died comes again, under the same id.
func TestCallbacksSurviveKills(t *testing.T) {
	t.Parallel()
	rounds, each := 1, 30
	if redistest.Soak {
		rounds, each = 25, 60
	}
	hears := &told{by: map[string]map[string]int{}, outcomes: map[string]string{}}
	ear := httptest.NewServer(hears)
	t.Cleanup(ear.Close)
	s := start(t, redistest.Start(t), harness.Plan{
		Rate: 300, Lease: 2 * time.Second,
		Respond: func(w http.ResponseWriter, _ *http.Request, id string, _ int) {
			if strings.HasPrefix(id, "gone") {
				w.WriteHeader(http.StatusGone)
			}
			fmt.Fprint(w, "answer to ", id)
		},
		More: fmt.Sprintf("[buckets.callbacks]\nbucket = \"told\"\nurl = %q\nfailure_url = %q\n"+
			"[[buckets]]\nname = \"told\"\nrate = \"300/s\"\n[buckets.webhook]\ntimeout = \"1s\"\nallow_networks = [\"127.0.0.0/8\"]\n", ear.URL+"/done", ear.URL+"/dead"),
	})
	proxy, err := faultproxy.New(s.Redis.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	text, err := os.ReadFile(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "killed.toml")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(text), s.Redis.URL(), "redis://"+proxy.Addr())), 0o600); err != nil {
		t.Fatal(err)
	}
	dispatch := func() *harness.Process { return harness.Run(t, s.Ops, "dispatcher", "run", "--config", path) }

	jobs, kills, d := 0, 0, dispatch()
	for round := range rounds {
		for _, step := range []*lua.Script{lua.Claim, lua.Settle, lua.MoveCallbacks, lua.Enqueue} {
			s.Post(fmt.Sprintf("job-%d-%s", round, step.Name()), each)
			s.Post(fmt.Sprintf("gone-%d-%s", round, step.Name()), each/10)
			jobs += each + each/10
			select {
			case <-proxy.DropReply(step.SHA() + "\r\n"):
			case <-time.After(harness.Patience * 20 * time.Second):
				t.Fatalf("%s: the dispatcher did not come there", step.Name())
			}
			proxy.Freeze()
			d.Kill()
			kills++
			proxy.Thaw()
			d = dispatch()
		}
	}
	harness.Await(t, 60*time.Second, "each job is told", func() bool { return hears.count() == jobs })
	harness.Await(t, 20*time.Second, "nothing is left", func() bool {
		left := s.Inspector.HLen(t.Context(), s.Key("callback_texts")).Val()
		made := s.Inspector.HLen(t.Context(), "tundish:{told}:b:told:body").Val()
		return left == 0 && made == 0
	})
	hears.mu.Lock()
	defer hears.mu.Unlock()
	again, poison := 0, 0
	for id, by := range hears.by {
		if len(by) != 1 {
			t.Errorf("job %s was told by %d callbacks: %v", id, len(by), slices.Collect(maps.Keys(by)))
		}
		for _, n := range by {
			again += n - 1
		}
		if hears.outcomes[id] == "job.dead" && !strings.HasPrefix(id, "gone") {
			poison++
		}
	}
	if len(hears.bad) > 0 {
		t.Errorf("%d callbacks are not as they should be, such as %s", len(hears.bad), hears.bad[0])
	}
	t.Logf("%d kills at 4 steps, %d jobs: each was told by one callback; %d of these came again, as their dispatcher died on the way; %d jobs were poison",
		kills, jobs, again, poison)
}
