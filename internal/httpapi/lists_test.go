package httpapi_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/internal/stored"
)

// A caller has four lists at a time, over all of its keys. Further ones wait, and other callers do not wait for them.
func TestFewListsAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var under atomic.Int64
		proceed := make(chan struct{})
		serve := httpapi.FewLists()(func(http.ResponseWriter, *http.Request) { under.Add(1); <-proceed })
		answers := make(chan int, 100)
		list := func(key *apikey.Key) {
			w := httptest.NewRecorder()
			serve(w, httpapi.As(httptest.NewRequest("GET", "/v1/buckets/b/jobs", nil), key))
			answers <- w.Code
		}
		want := func(n int64) {
			t.Helper()
			if synctest.Wait(); under.Load() != n {
				t.Fatalf("%d lists were begun, want %d", under.Load(), n)
			}
		}
		for i := range 6 {
			go list(&apikey.Key{Name: fmt.Sprint("k", i), Caller: "a"})
		}
		want(4)
		go list(&apikey.Key{Name: "b"})
		want(5)
		proceed <- struct{}{}
		synctest.Wait()
		close(proceed)
		want(7)
		for range 7 {
			must.Equal(t, <-answers, http.StatusOK, "status")
		}
		proceed = make(chan struct{})
		for range 5 {
			go list(nil)
		}
		if status := <-answers; status != http.StatusServiceUnavailable { // the fifth, at last
			t.Errorf("status %d, want 503", status)
		}
		close(proceed)
		want(11)
	})
}

// Lists have payloads only where they are asked for them.
func TestListsHavePayloadsIfAsked(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	all := buckets(t)[:1]
	client := connect(t, store.URL())
	ops := serve(t, httpapi.NewOps(httpapi.OpsConfig{Buckets: newOperator(t, client, nil, all)}))
	ops.do("POST", "/v1/buckets/roomy/resume", "").want(200, "")
	key := stored.Key("roomy", "")
	pipe := client.Pipeline()
	pipe.HSet(t.Context(), key+"body", "waits", "0 1 00000000000cn001 \n\"a secret\"", "died", "1 1 00000000000cn001 \n\"a secret\"", "text", "2 1 00000000000cn001 \nno JSON")
	pipe.HSet(t.Context(), key+"meta", "died", `5 1 1 0 0 - {"cause":"permanent","status":404}`)
	pipe.RPush(t.Context(), key+"q:normal:", "waits", "text")
	pipe.ZAdd(t.Context(), key+"dead", redis.Z{Member: "died", Score: 1783228800000000})
	must.Get(pipe.Exec(t.Context()))(t)
	for path, jobs := range map[string]string{jobs: "waits", "/v1/buckets/roomy/dead": "died", "/v1/buckets/roomy/dead?offset=0": "died"} {
		query := func(payload string) string {
			if strings.Contains(path, "?") {
				return path + "&payload=" + payload
			}
			return path + "?payload=" + payload
		}
		for _, path := range []string{path, query("false")} {
			if a := ops.do("GET", path, "").want(200, ""); strings.Contains(a.text, "payload") || !strings.Contains(a.text, jobs) {
				t.Errorf("%s: %s", path, a.text)
			}
		}
		if a := ops.do("GET", query("true"), "").want(200, ""); !strings.Contains(a.text, `"payload":"a secret"`) {
			t.Errorf("%s: %s", query("true"), a.text)
		}
		wantField(t, ops.do("GET", query("1"), ""), "payload")
	}
	if a := ops.do("GET", jobs+"?payload=true", "").want(200, ""); !strings.Contains(a.text, "payload_base64") {
		t.Errorf("a payload that is not JSON: %s", a.text)
	}
}
