package test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/faultproxy"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/lua"
)

// TestLostReplies: the reply of an enqueue, a claim and a settle each gets
// lost once; no job is, and none comes twice.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	for _, script := range []*lua.Script{lua.Enqueue, lua.Claim, lua.Settle} {
		t.Run(script.Name(), func(t *testing.T) {
			server := redistest.Start(t)
			proxy, err := faultproxy.New(server.Addr())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = proxy.Close() })
			s := start(t, server, plan{rate: 200, dispatchers: 2, lease: 3 * time.Second, redisURL: "redis://" + proxy.Addr()})
			s.post("before", 50)
			dropped := proxy.DropReply(script.SHA() + "\r\n")
			for i := range 100 {
				id := fmt.Sprintf("job-%d", i)
				if status := s.send(id); status != http.StatusAccepted {
					t.Fatalf("job %s: %d", id, status)
				}
			}
			select {
			case <-dropped:
			case <-time.After(patience * 10 * time.Second):
				t.Fatal("no reply was dropped")
			}
			s.awaitDelivered(20 * time.Second)
			await(t, 20*time.Second, "everything is settled", func() bool { return s.unfinished() == 0 })
			r := s.history.Check()
			t.Log(r)
			if r.Err() != nil || r.Extra > 0 {
				t.Errorf("%v; came twice: %v", r.Err(), r.Duplicated)
			}
		})
	}
}

// TestOutOfMemory: at maxmemory the API answers 503 and the bucket drains.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	const jobs = 400
	server := redistest.Start(t, "--maxmemory-policy", "noeviction")
	s := start(t, server, plan{rate: 200, dispatchers: 1})
	s.post("full", jobs)
	client := server.Client()
	if err := client.ConfigSet(t.Context(), "maxmemory", "1mb").Err(); err != nil {
		t.Fatal(err)
	}
	status, answer := s.request(http.MethodPost, "/v1/buckets/"+bucketName+"/jobs", "application/json",
		strings.NewReader(`{"id":"refused","payload":{}}`))
	t.Logf("enqueue at maxmemory: %d %s", status, answer)
	if status != http.StatusServiceUnavailable {
		t.Fatalf("enqueue at maxmemory: %d, want 503", status)
	}
	await(t, 20*time.Second, "the bucket drains to 0", func() bool { return s.unfinished() == 0 })
	r := s.history.Check()
	t.Log(r)
	if r.Err() != nil || r.Extra > 0 || r.Delivered != jobs {
		t.Errorf("%v; came twice: %v", r.Err(), r.Duplicated)
	}
	if err := client.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	if status := s.send("after"); status != http.StatusAccepted {
		t.Errorf("enqueue when there is memory again: %d", status)
	}
}
