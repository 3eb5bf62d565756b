package console_test

import (
	"net/http"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/stored"
	"github.com/tundish-io/tundish/shaper"
)

// The page of a bucket says what bounds it now, and who drains it.
func TestBoundsOfABucket(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	v := s.visitor()
	s.enqueue(shaper.Job{Bucket: "letters", ID: "a", Payload: []byte("1")})
	v.get("/console/buckets/letters").want(t, http.StatusOK, "no process tells of it")
	must.OK(t, s.redis.HSet(t.Context(), stored.Key("letters", "settings"), "quotas", "5 86400000000;").Err())
	v.get("/console/buckets/letters").want(t, http.StatusOK, "What bounds it now", "5/d")
	v.post("/console/buckets/letters/do/drain").want(t, http.StatusOK, "It leaks now.", "Stop the drain", "dispatcher bucket drain letters --stop")
	v.post("/console/buckets/letters/do/stop-drain").want(t, http.StatusOK, "The drain is stopped.")
}
