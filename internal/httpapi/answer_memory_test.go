package httpapi_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

// resulting has one result for all jobs.
type resulting struct {
	fake
	body []byte
}

func (s *resulting) Result(_ context.Context, bucket, id string) (shaper.JobResult, error) {
	return shaper.JobResult{ID: id, Bucket: bucket, State: shaper.StateDone, Owner: shaper.Owner{Mark: shaper.CallerMark("enqueue")}, Answer: &shaper.Answer{Status: 200, Body: s.body}}, nil
}

// unread is a client that reads nothing of its answer until release.
type unread struct {
	*httptest.ResponseRecorder
	entered, release chan struct{}
}

func (w *unread) Write(text []byte) (int, error) {
	close(w.entered)
	<-w.release
	return w.ResponseRecorder.Write(text)
}

// A large answer counts against the memory of bodies until its client has read it, and against the share of its caller. Small answers do not count.
func TestAnswerMemory(t *testing.T) {
	t.Parallel()
	s := &resulting{fake: *store(t), body: []byte(strings.Repeat("\x01", 7<<10))} // 42 KiB as JSON
	keys := []apikey.Key{keyOf("a", []string{"*"}, apikey.RoleRead), keyOf("b", []string{"*"}, apikey.RoleRead)}
	api := httpapi.NewProducer(httpapi.ProducerConfig{Jobs: s, BodyMemory: 100 << 10, Keys: keys})
	get := func(key, path string) *httptest.ResponseRecorder {
		return request(api, far, "GET", jobs+"/x"+path, "", "Authorization", "Bearer "+key)
	}
	w := &unread{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
	release := sync.OnceFunc(func() { close(w.release) })
	defer release()
	read := make(chan struct{})
	go func() {
		defer close(read)
		r := httptest.NewRequest("GET", jobs+"/x/result", http.NoBody)
		r.Header.Set("Authorization", "Bearer a")
		api.ServeHTTP(w, r)
	}()
	<-w.entered
	refused := get("a", "/result")
	if refused.Code != 503 || refused.Header().Get("Retry-After") != "1" || !strings.Contains(refused.Body.String(), `"no memory for an answer of 43`) {
		t.Errorf("a second answer: %d, Retry-After %q, %.200s", refused.Code, refused.Header().Get("Retry-After"), refused.Body)
	}
	for name, got := range map[string]int{"a small answer": get("a", "").Code, "another caller's": get("b", "/result").Code} {
		must.Equal(t, got, 200, "%s", name)
	}
	release()
	<-read
	must.Equal(t, get("a", "/result").Code, 200, "after the first is read")
	// One that is larger than all memory takes all of it.
	s.body = []byte(strings.Repeat("\x01", 50<<10))
	must.Equal(t, get("a", "/result").Code, 200, "a larger one")
}
