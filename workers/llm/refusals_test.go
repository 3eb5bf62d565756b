package llm

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
)

// strict is an API that refuses stream_options, and notes each body that it gets.
type strict struct {
	status int
	says   string

	mu     sync.Mutex
	bodies []string
}

func (s *strict) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.bodies = append(s.bodies, string(body))
	givesIn := len(s.bodies) > 1 // so that one which sends them again and again is found out
	s.mu.Unlock()
	if strings.Contains(string(body), "stream_options") && !givesIn {
		w.WriteHeader(s.status)
		_, _ = io.WriteString(w, s.says)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, strings.Replace(chatStream, usageChunk, "", 1))
}

func (s *strict) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.bodies
	s.bodies = nil
	return seen
}

// A provider that refuses stream_options is asked once more as the client has asked, at a slot of its own, and then without them.
func TestStrictProviders(t *testing.T) {
	t.Parallel()
	for name, api := range map[string]*strict{
		"OpenAI's form": {status: http.StatusBadRequest, says: `{"error":{"message":"Unrecognized request argument supplied: stream_options","type":"invalid_request_error"}}`},
		"Mistral":       {status: http.StatusUnprocessableEntity, says: `{"detail":[{"type":"extra_forbidden","loc":["body","stream_options"],"msg":"Extra inputs are not permitted"}]}`},
	} {
		q := newQueued(t, apiOf(t, OpenAI, api.serve))
		for n, tries := range []int{2, 1} {
			a, err := q.post(t.Context(), `,"stream":true,"max_tokens":40`)
			seen := api.seen()
			if err != nil || a.status != http.StatusOK || !strings.Contains(a.body, "[DONE]") || len(seen) != tries {
				t.Fatalf("%s: call %d: %d tries, %d %s, %v", name, n, len(seen), a.status, a.body, err)
			}
			must.Equal(t, seen[len(seen)-1], chat(`,"stream":true,"max_tokens":40`), "%s: call %d: the API gets", name, n)
		}
		if a, err := q.post(t.Context(), `,"stream":true,"stream_options":{"include_usage":true}`); err != nil || a.status != api.status || len(api.seen()) != 1 {
			t.Errorf("%s: options of the client: %d, %v", name, a.status, err)
		}
	}
	other := &strict{status: http.StatusBadRequest, says: `{"error":{"message":"max_tokens is too large"}}`}
	q := newQueued(t, apiOf(t, OpenAI, other.serve))
	if a, err := q.post(t.Context(), `,"stream":true`); err != nil || a.status != http.StatusBadRequest || a.body != other.says || len(other.seen()) != 1 {
		t.Errorf("another error: %+v, %v", a, err)
	}
	config := apiOf(t, OpenAI, other.serve)
	config.IncludeUsage = false
	q = newQueued(t, config)
	if a, err := q.post(t.Context(), `,"stream":true`); err != nil || a.status != http.StatusOK || len(other.seen()) != 1 {
		t.Errorf("where nothing is added: %+v, %v", a, err)
	}
}

// What is refused is remembered for each model, for an hour, and for a bounded number of them.
func TestRefusalsEnd(t *testing.T) {
	t.Parallel()
	l, now := &LearnedEstimates{}, time.Now()
	l.refuses(&request{model: "m"}, now)
	if !l.refusesUsage("m", now.Add(59*time.Minute)) || l.refusesUsage("m", now.Add(time.Hour)) || l.refusesUsage("n", now) {
		t.Error("it is not remembered for an hour, or of another model")
	}
	for i := range 200 {
		l.refuses(&request{model: fmt.Sprint("m", i)}, now)
	}
	if len(l.refusals) > learnedModels+1 || !l.refusesUsage("m199", now) {
		t.Errorf("%d models are remembered", len(l.refusals))
	}
}
