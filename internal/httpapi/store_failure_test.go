package httpapi_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper/producer"
)

// gatewayOn is the producer's API on a Redis, with a limit for each OnStoreFailure, and an admin of that Redis whose connection stays.
func gatewayOn(t *testing.T, store *redistest.Server, servesAlone bool) (*server, *redis.Client) {
	t.Helper()
	return gatewayFor(t, store, servesAlone, patience)
}

// gatewayFor is gatewayOn, and waits so long for Redis.
func gatewayFor(t *testing.T, store *redistest.Server, servesAlone bool, timeout time.Duration) (*server, *redis.Client) {
	t.Helper()
	conn := connectFor(t, store.URL(), timeout)
	var limits []admission.Limit
	for _, mode := range []admission.OnStoreFailure{admission.Closed, admission.Open, admission.Local} {
		limits = append(limits, admission.Limit{Name: string(mode), Limit: rateOf(t, "1000/m"), Per: []string{admission.PerCaller}, OnMissing: admission.Share, OnStoreFailure: mode})
	}
	limiter := must.Get(admission.NewLimiter(admission.LimiterConfig{Redis: conn, Limits: limits, Timeout: timeout}))(t)
	t.Cleanup(limiter.Close)
	admin := redis.NewClient(&redis.Options{Addr: store.Addr(), PoolSize: 1, MaxRetries: -1})
	t.Cleanup(func() { _ = admin.Close() })
	return serve(t, httpapi.NewProducer(httpapi.ProducerConfig{
		Jobs: newClientFor(t, conn, nil, timeout), CheckJob: checkJob, Limits: limiter, ServesAlone: func() bool { return servesAlone },
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})), admin
}

// A fault of Redis is named, whatever it is: enqueue is 503, limits do what on_store_failure says, and /readyz is 503 only where nothing can be served.
func TestEveryFailureOfRedis(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fault       []any
		kill        bool // the connections: they have signed in
		code, words string
		ready       int // with limits that serve alone
		readyAlone  int // without
	}{
		"no password is given": {[]any{"config", "set", "requirepass", "secret"}, true, "store-forbidden", "refuses", 200, 503},
		"no rights":            {[]any{"acl", "setuser", "default", "-@scripting"}, false, "store-forbidden", "refuses", 200, 503},
		"no writes":            {[]any{"acl", "setuser", "default", "-set", "-hset", "-hdel", "-get", "-del"}, false, "store-forbidden", "refuses", 200, 503},
		"no keys":              {[]any{"acl", "setuser", "default", "resetkeys", "~other:*"}, false, "store-forbidden", "refuses", 200, 503},
		"user is off":          {[]any{"acl", "setuser", "default", "off"}, true, "store-forbidden", "refuses", 200, 503},
		"out of memory":        {[]any{"config", "set", "maxmemory", "1"}, false, "store-full", "out of memory", 200, 200},
		"replica":              {[]any{"replicaof", "127.0.0.1", "1"}, false, "store-unavailable", "refuses", 200, 503},
		"no replicas":          {[]any{"config", "set", "min-replicas-to-write", "1"}, false, "store-unavailable", "refuses", 200, 503},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := redistest.Start(t)
			for servesAlone, ready := range map[bool]int{true: test.ready, false: test.readyAlone} {
				s, admin := gatewayOn(t, store, servesAlone)
				s.do("POST", jobs, job("")).want(202, "")
				s.do("GET", "/readyz", "").want(200, "")
				must.OK(t, admin.Do(t.Context(), test.fault...).Err())
				if test.kill {
					must.OK(t, admin.Do(t.Context(), "client", "kill", "type", "normal", "skipme", "yes").Err())
					s.do("POST", jobs, job("")) // finds its connection closed, perhaps
				}
				s.do("POST", jobs, job("")).want(503, test.code)
				full := s.do("POST", jobs, job("")).want(503, test.code)
				if detail, _ := full.json["detail"].(string); !strings.Contains(detail, "stored") || full.header.Get("Retry-After") == "" {
					t.Errorf("%s, Retry-After %q", full.text, full.header.Get("Retry-After"))
				}
				for range 20 {
					s.do("GET", "/v1/limits/closed/check?key=k", "").want(503, test.code)
					s.do("GET", "/v1/limits/open/check?key=k", "").want(200, "")
					s.do("GET", "/v1/limits/local/check?key=k", "").want(200, "")
				}
				if got := readiness(s, test.words); got.status != ready || !strings.Contains(got.text, test.words) {
					t.Errorf("/readyz is %d, want %d and %q: %s", got.status, ready, test.words, got.text)
				}
				// Back again.
				for _, repair := range [][]any{
					{"config", "set", "requirepass", ""}, {"acl", "setuser", "default", "on", "nopass", "allkeys", "allcommands"}, {"config", "set", "maxmemory", "0"},
					{"replicaof", "no", "one"}, {"config", "set", "min-replicas-to-write", "0"},
				} {
					must.OK(t, admin.Do(t.Context(), repair...).Err())
				}
				await(t, func() bool { return s.do("POST", jobs, job("")).status == 202 })
				await(t, func() bool { return s.do("GET", "/readyz", "").text == "ok\n" })
			}
		})
	}
}

// A Redis that stands still or is gone is no reason to take limits that serve alone out of service: a gateway behind this readiness goes on.
func TestLimitsServeWhileRedisIsSilent(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(store *redistest.Server) (repair func() error){
		"frozen": func(store *redistest.Server) func() error {
			store.Stop()
			return func() error { store.Cont(); return nil }
		},
		"gone": func(store *redistest.Server) func() error {
			store.Kill()
			return store.Restart
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := redistest.Start(t, "--appendonly", "yes")
			alone, _ := gatewayFor(t, store, true, time.Second)
			bound, _ := gatewayFor(t, store, false, time.Second)
			for _, s := range []*server{alone, bound} {
				await(t, func() bool { return s.do("POST", jobs, job("")).status == 202 })
				await(t, func() bool { return s.do("GET", "/readyz", "").status == 200 })
			}
			repair := fault(store)
			for range 20 {
				alone.do("GET", "/v1/limits/open/check?key=k", "").want(200, "")
				alone.do("GET", "/v1/limits/local/check?key=k", "").want(200, "")
				alone.do("GET", "/v1/limits/closed/check?key=k", "").want(503, "store-unavailable")
			}
			const words = "not reachable or too slow"
			for s, ready := range map[*server]int{alone: 200, bound: 503} {
				if got := readiness(s, words); got.status != ready || !strings.Contains(got.text, words) {
					t.Errorf("/readyz is %d, want %d and %q: %s", got.status, ready, words, got.text)
				}
			}
			must.OK(t, repair())
			for _, s := range []*server{alone, bound} {
				await(t, func() bool { return s.do("POST", jobs, job("")).status == 202 })
				await(t, func() bool { return s.do("GET", "/readyz", "").text == "ok\n" })
			}
		})
	}
}

// While the circuit breaker is open nothing is sent to Redis, so no job may be in: a client may enqueue it elsewhere.
func TestNothingIsStoredWhileTheBreakerIsOpen(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t, "--appendonly", "no") // a server of its own
	breaker := redisconn.NewBreaker(redisconn.BreakerConfig{Failures: 1, Pause: time.Hour})
	client := must.Get(producer.New(producer.Config{Redis: connectFor(t, store.URL(), time.Second), Buckets: buckets(t), Timeout: time.Second, Breaker: breaker}))(t)
	t.Cleanup(client.Close)
	s := serve(t, httpapi.NewProducer(httpapi.ProducerConfig{Jobs: client, CheckJob: checkJob, Logger: logTo(t.Output())}))
	s.do("POST", jobs, job("")).want(202, "")
	store.Kill()
	for _, words := range []string{"jobs may be in or not", "nothing was stored"} { // the second one finds the breaker open
		if a := s.do("POST", jobs, job("")).want(503, "store-unavailable"); !strings.Contains(a.text, words) {
			t.Errorf("want %q: %s", words, a.text)
		}
	}
}

// readiness is what /readyz responds once it says words: it keeps what it has found out for a while.
func readiness(s *server, words string) (got *answer) {
	s.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		if got = s.do("GET", "/readyz", ""); strings.Contains(got.text, words) {
			break
		}
	}
	return got
}

// await waits until done says so.
func await(t *testing.T, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen within 30 s")
		}
	}
}

// What another program left under a key of this program is no failure of Redis: it would be there for ever.
func TestOwnErrorsAreNoFailureOfRedis(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	s, admin := gatewayOn(t, store, true)
	s.do("POST", jobs, job("")).want(202, "")
	for _, key := range admin.Keys(t.Context(), "tundish:*roomy*:settings").Val() {
		must.OK(t, admin.Del(t.Context(), key).Err())
		must.OK(t, admin.Set(t.Context(), key, "text", 0).Err())
	}
	s.do("POST", jobs, job("")).want(500, "internal")
	s.do("GET", "/readyz", "").want(200, "")
}
