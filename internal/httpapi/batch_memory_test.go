package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

// A small job of a batch takes much more memory than its bytes while it waits for Redis. So it counts, against the share of its caller.
func TestBatchMemory(t *testing.T) {
	t.Parallel()
	f := store(t)
	entered, release := make(chan struct{}), make(chan struct{})
	var calls atomic.Int64
	f.enqueue = func(context.Context) ([]shaper.Receipt, error) {
		if calls.Add(1) == 1 {
			close(entered)
			<-release
		}
		return nil, errors.New("no Redis")
	}
	keys := []apikey.Key{keyOf("a", []string{"*"}, apikey.RoleEnqueue), keyOf("b", []string{"*"}, apikey.RoleEnqueue)}
	api := httpapi.NewProducer(httpapi.ProducerConfig{Jobs: f, BodyMemory: 3 << 20, Keys: keys})
	send := func(key string, jobsOfIt int) *httptest.ResponseRecorder {
		return request(api, far, "POST", jobs+"/batch", strings.Repeat("{\"payload\":1}\n", jobsOfIt), "Content-Type", "application/x-ndjson", "Authorization", "Bearer "+key)
	}
	first := make(chan int, 1)
	go func() { first <- send("a", 1000).Code }()
	<-entered
	if refused := send("a", 1000); refused.Code != 503 || refused.Header().Get("Retry-After") != "1" || !strings.Contains(refused.Body.String(), `"overloaded"`) {
		t.Errorf("a second batch: %d, %s", refused.Code, refused.Body)
	}
	for name, got := range map[string]int{"a small batch": send("a", 100).Code, "another caller's": send("b", 1000).Code} {
		must.Equal(t, got, 500, "%s has no room", name)
	}
	close(release)
	must.Equal(t, <-first, 500, "the first")
	must.Equal(t, send("a", 1000).Code, 500, "after the first has its answer")
}

// A batch that leaves no memory for its jobs is taken when no other request needs memory.
func TestLargestBatch(t *testing.T) {
	t.Parallel()
	f := store(t)
	api := serve(t, httpapi.NewProducer(httpapi.ProducerConfig{Jobs: f, CheckJob: checkJob, BodyMemory: 60 << 10}))
	lines := strings.Repeat(job("")+"\n", 100)
	api.do("POST", jobs+"/batch", strings.Repeat(" ", 30<<10-len(lines))+lines, "Content-Type", "application/x-ndjson").want(200, "").has("admitted", 100.0)
}

// The answer to a batch shows 1000 faults of fields, and one of each further job.
func TestFaultsOfABatch(t *testing.T) {
	t.Parallel()
	api := serveFake(t, &fake{enqueue: func(context.Context) ([]shaper.Receipt, error) { return nil, nil }}, &logBuffer{})
	var line []string
	for i := range 8 {
		line = append(line, fmt.Sprintf(`"u%d":1`, i))
	}
	bad := `{"payload":1,` + strings.Join(line, ",") + "}\n"
	a := api.do("POST", jobs+"/batch", strings.Repeat(bad, 1000), "Content-Type", "application/x-ndjson").want(400, "invalid")
	shown, results := 0, a.json["results"].([]any)
	for i, result := range results {
		faults := result.(map[string]any)["errors"].([]any)
		if i == 0 && len(faults) != 8 || len(faults) == 0 {
			t.Fatalf("result %d shows %d faults", i, len(faults))
		}
		shown += len(faults)
	}
	if want := 1000 + 1000 - 1000/8; shown != want {
		t.Errorf("it shows %d faults, want %d", shown, want)
	}
}
