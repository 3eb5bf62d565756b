package test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// TestRedisIsAReplica: while Redis is a replica, which answers reads and refuses writes, neither program is ready, and each logs one line; so it
// does when Redis is a master again. Nothing is lost.
func TestRedisIsAReplica(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := start(t, server, harness.Plan{Rate: 5, Dispatchers: 1})
	s.Post("before", 30) // six seconds of jobs, so that the dispatcher claims meanwhile
	ready := func(url string) bool {
		response, err := http.Get(url + "/readyz")
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	}
	client := server.Client()
	if err := client.Do(t.Context(), "REPLICAOF", "127.0.0.1", strconv.Itoa(1)).Err(); err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{s.API, s.OpsOf[0]} {
		harness.Await(t, 10*time.Second, url+" is not ready", func() bool { return !ready(url) })
	}
	log := s.Dispatchers[0].Output
	harness.Await(t, 60*time.Second, "the dispatcher finds out", func() bool { return strings.Contains(log.String(), "nothing is claimed") })
	looks := func() int {
		text, err := client.Info(t.Context(), "commandstats").Result()
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(text, "cmdstat_exists:calls=")
		calls, _, _ := strings.Cut(after, ",")
		n, _ := strconv.Atoi(calls)
		return n
	}
	for before := looks(); looks() < before+5; { // the dispatcher looks after its buckets by reads, which work
		if status := s.Send("refused"); status != http.StatusServiceUnavailable {
			t.Fatalf("enqueue: %d, want 503", status)
		}
	}
	if err := client.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	harness.Await(t, 20*time.Second, "both are ready", func() bool { return ready(s.API) && ready(s.OpsOf[0]) })
	harness.Await(t, 20*time.Second, "the producer takes a job", func() bool { return s.Send("after") == http.StatusAccepted })
	s.AwaitDelivered(60 * time.Second)
	harness.Await(t, 60*time.Second, "claims work again", func() bool { return strings.Contains(log.String(), "claims work again") })
	for line, of := range map[string]*harness.Process{"nothing is claimed": s.Dispatchers[0], "claims work again": s.Dispatchers[0], "breaker of Redis is open": s.Producer, "breaker of Redis is closed": s.Producer} {
		if n := strings.Count(of.Output.String(), line); n != 1 {
			t.Errorf("%d lines %q, want one:\n%s", n, line, of.Output)
		}
	}
	if strings.Contains(log.String(), "does not answer") {
		t.Error("the log says that Redis does not answer: it does, by refusals")
	}
	if r := s.History.Check(); r.Err() != nil {
		t.Error(r.Err())
	}
}
