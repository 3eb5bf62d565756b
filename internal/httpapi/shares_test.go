package httpapi_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/producer"
)

// stuck is a store that answers no enqueue until release.
type stuck struct {
	fake
	entered chan bool // true: the request waits for a result
	release chan struct{}
}

func (s *stuck) Enqueue(context.Context, ...shaper.Job) ([]shaper.Receipt, error) {
	s.entered <- false
	<-s.release
	return nil, errors.New("released")
}

func (s *stuck) Await(context.Context, shaper.Job) (shaper.Receipt, *producer.Awaited, error) {
	s.entered <- true
	<-s.release
	return shaper.Receipt{}, nil, errors.New("released")
}

// crowded is an API for max requests, with keys a to d, of which aa is a's too. start sends a request that stays under way, and reports
// whether it waits for a result. end ends these requests.
func crowded(t *testing.T, most int) (api *server, start func(key string, headers ...string) (waits bool), end func()) {
	t.Helper()
	s := &stuck{entered: make(chan bool, 10), release: make(chan struct{})}
	s.bucket = buckets(t)[0]
	var keys []apikey.Key
	for _, name := range []string{"a", "aa", "b", "c", "d"} {
		keys = append(keys, keyOf(name, []string{"*"}, apikey.RoleEnqueue))
	}
	keys[1].Caller = "a"
	api = serve(t, httpapi.NewProducer(httpapi.ProducerConfig{
		Jobs: s, Keys: keys, MaxConnections: most,
		Proxy: func(string) (httpapi.ProxySettings, bool) { return httpapi.ProxySettings{Timeout: time.Minute}, true },
	}))
	var under sync.WaitGroup
	release := sync.OnceFunc(func() { close(s.release) })
	start = func(key string, headers ...string) bool {
		under.Go(func() {
			api.as(key, "POST", jobs, job(""), headers...).want(http.StatusInternalServerError, "internal")
		})
		return <-s.entered
	}
	return api, start, func() { release(); under.Wait() }
}

// A caller has as many requests under way as it leaves places free for the others. Probes need no place.
func TestRequestsOfACaller(t *testing.T) {
	t.Parallel()
	api, start, end := crowded(t, 6)
	refused := func(key string) {
		t.Helper()
		api.as(key, "POST", jobs, job("")).want(http.StatusServiceUnavailable, "overloaded").wantHeader("Retry-After", "1")
	}
	start("a")
	start("a")
	start("aa")
	refused("a")
	refused("aa")
	api.do("POST", jobs, job("")).want(http.StatusUnauthorized, "unauthorized")
	start("b")
	start("b")
	refused("b")
	start("c")
	refused("d")
	api.do("GET", "/livez", "").want(http.StatusOK, "")
	api.do("GET", "/readyz", "").want(http.StatusOK, "")
	api.do("GET", "/openapi.yaml", "").want(http.StatusServiceUnavailable, "overloaded")
	end()
	start("d")
	end()
}

// Half of the requests may wait for results, and a caller has a share of that. Beyond it, Prefer: wait is ignored, and the proxy refuses.
func TestRequestsThatWait(t *testing.T) {
	t.Parallel()
	api, start, end := crowded(t, 8)
	for i, waits := range []bool{true, true, false} {
		must.Equal(t, start("a", "Prefer", "wait=300"), waits, "request %d of a waits", i)
	}
	api.do("GET", "/v1/proxy/roomy/x", "", "Tundish-Key", "a").want(http.StatusServiceUnavailable, "overloaded").wantHeader("Retry-After", "1")
	if !start("b", "Prefer", "wait=300") {
		t.Error("b's does not")
	}
	end()
	for range 3 {
		if !start("a", "Prefer", "wait=300") {
			t.Error("a's place is not given back")
		}
		end()
	}
}
