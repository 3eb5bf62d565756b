package test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// heard is what callbacks said of each job.
type heard struct {
	mu   sync.Mutex
	said map[string][]string
}

func (h *heard) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	var body struct {
		Type string `json:"type"`
		Data struct {
			ID       string `json:"id"`
			Cause    string `json:"cause"`
			Reason   string `json:"reason"`
			Attempts int    `json:"attempts"`
		} `json:"data"`
	}
	err := json.NewDecoder(r.Body).Decode(&body)
	h.mu.Lock()
	defer h.mu.Unlock()
	d := body.Data
	said := strings.Join(strings.Fields(fmt.Sprint(r.URL.Path, " ", body.Type, " ", d.Cause, " ", d.Reason, " ", d.Attempts)), " ")
	if err != nil {
		said = err.Error()
	}
	h.said[d.ID] = append(h.said[d.ID], said)
}

// TestAsynqOutcomesAreTold settles jobs in the process of an asynq server, and looks at what their callbacks say, which a dispatcher sends. A
// caller that waits for its job is answered too.
func TestAsynqOutcomesAreTold(t *testing.T) {
	t.Parallel()
	const each = 10
	hears := &heard{said: map[string][]string{}}
	ear := httptest.NewServer(hears)
	t.Cleanup(ear.Close)
	tasks := redistest.Start(t)
	s := start(t, redistest.Start(t), harness.Plan{
		Rate: 200, Dispatchers: 1, Asynq: harness.AsynqKeys(tasks.URL()),
		Respond: func(w http.ResponseWriter, _ *http.Request, id string, attempt int) {
			switch kind, _, _ := strings.Cut(id, "-"); {
			case kind == "skipped":
				w.WriteHeader(http.StatusGone)
			case kind == "revoked":
				w.WriteHeader(http.StatusConflict)
			case kind == "retried" && attempt == 1, kind == "spent":
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		},
		More: fmt.Sprintf("[buckets.callbacks]\nbucket = \"told\"\nurl = %q\nfailure_url = %q\n"+
			"[[buckets]]\nname = \"told\"\nrate = \"300/s\"\n[buckets.webhook]\nallow_networks = [\"127.0.0.0/8\"]\n", ear.URL+"/done", ear.URL+"/dead"),
	})
	harness.StartAsynq(t, harness.AsynqPlan{Tasks: tasks.URL(), Tundish: s.Redis.URL(), Receiver: s.Receiver.URL, Workers: 20})
	want := map[string]string{
		"done":    "/done job.done 1",
		"retried": "/done job.done 2",
		"skipped": "/dead job.dead permanent skip_retry 1",
		"spent":   "/dead job.dead attempts-exhausted handler_error 2",
		"revoked": "/done job.dropped revoked 1",
	}
	for kind := range want {
		s.PostAs(kind, each, `,"max_attempts":2`)
	}
	harness.Await(t, 30*time.Second, "all jobs have ended", func() bool {
		return s.Unfinished() == int64(2*each) // dead letters
	})
	harness.Await(t, 30*time.Second, "all callbacks are sent", func() bool {
		hears.mu.Lock()
		defer hears.mu.Unlock()
		return len(hears.said) >= len(want)*each
	})
	hears.mu.Lock()
	defer hears.mu.Unlock()
	for kind, says := range want {
		for i := range each {
			id := fmt.Sprintf("%s-%d", kind, i)
			if said := hears.said[id]; len(said) != 1 || said[0] != says {
				t.Errorf("job %s: callbacks said %q, want one with %q", id, said, says)
			}
			delete(hears.said, id)
		}
	}
	if len(hears.said) > 0 {
		t.Errorf("callbacks of other jobs: %v", hears.said)
	}
	for id, says := range map[string]string{"retried-wait": `"state":"done"`, "skipped-wait": `"state":"dead"`} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.API+"/v1/buckets/"+harness.BucketName+"/jobs",
			strings.NewReader(fmt.Sprintf(`{"id":%q,"payload":{}}`, id)))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Prefer", "wait=30")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		var answer strings.Builder
		if err := response.Write(&answer); err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if !strings.Contains(answer.String(), says) {
			t.Errorf("the caller that waits for job %s is answered %s, want %s", id, answer.String(), says)
		}
	}
}
