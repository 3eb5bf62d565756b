package admission

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/redisconn"
)

const someday = 1783228800123456 // microseconds

// newLimiter is a limiter of these limits on a client.
func newLimiter(t testing.TB, client redis.UniversalClient, limits ...Limit) *Limiter {
	t.Helper()
	l, err := NewLimiter(LimiterConfig{Redis: client, Limits: limits, Timeout: 10 * time.Second}) // machines are busy
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func TestLimiterAllow(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, client redis.UniversalClient) {
		limiter := newLimiter(t, client)
		limit := Limit{Name: "l", Limit: Rate{Count: 7, Per: time.Minute}, Burst: 3}
		for i, try := range []struct {
			after time.Duration
			key   string
			n     int64
			want  Decision
		}{
			{0, "a", 2, Decision{Allowed: true, Remaining: 1, ResetAfter: 17142858 * time.Microsecond}},
			{0, "a", 2, Decision{Remaining: 1, RetryAfter: 8571429 * time.Microsecond, ResetAfter: 17142858 * time.Microsecond}},
			{0, "b", 3, Decision{Allowed: true, ResetAfter: 25714286 * time.Microsecond}},
			{0, "b", 4, Decision{Impossible: true, ResetAfter: 25714286 * time.Microsecond}},
			{8571428 * time.Microsecond, "a", 2, Decision{Remaining: 1, RetryAfter: 1000, ResetAfter: 8571430 * time.Microsecond}},
			{8571429 * time.Microsecond, "a", 2, Decision{Allowed: true, ResetAfter: 25714286 * time.Microsecond}},
		} {
			limiter.now = strconv.FormatInt(someday+try.after.Microseconds(), 10)
			want := try.want
			want.Limit, want.Rate, want.Quota, want.Window = "l", limit.Limit, 3, 25714285714*time.Nanosecond
			got, err := limiter.Allow(t.Context(), limit, try.key, try.n)
			if (got.Window - want.Window).Abs() < time.Microsecond {
				got.Window = want.Window
			}
			if err != nil || got != want {
				t.Errorf("try %d: %+v, %v\nwant %+v", i, got, err, want)
			}
		}
	})
}

func TestLimiterRefusesNonsense(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = client.Close() })
	limiter := newLimiter(t, client)
	for _, n := range []int64{0, -1, 1_000_001} {
		if d, err := limiter.Allow(t.Context(), validLimit(), "k", n); err == nil || redisconn.Unavailable(err) || d != (Decision{}) {
			t.Errorf("cost %d: %+v, %v", n, d, err)
		}
	}
	if _, err := limiter.Allow(t.Context(), Limit{}, "k", 1); err == nil {
		t.Error("the zero limit is asked")
	}
}

// However many ask at a time, over however many connections, no more than the
// limit pass, and no fewer.
func TestLimiterUnderLoad(t *testing.T) {
	t.Parallel()
	for _, algorithm := range Algorithms() {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			redistest.Both(t, func(t *testing.T, client redis.UniversalClient) {
				limit := Limit{Name: "l", Algorithm: algorithm, Limit: Rate{Count: 500, Per: MaxPeriod}}
				var passed atomic.Int64
				var all sync.WaitGroup
				for range 4 {
					limiter := newLimiter(t, client)
					limiter.now = strconv.Itoa(someday)
					limiter.timeout = 30 * time.Second // a busy machine must not decide who passes
					for range 16 {
						all.Go(func() {
							for range 10 {
								d, err := limiter.Allow(t.Context(), limit, "k", 1)
								if err != nil {
									t.Error(err)
								}
								if d.Allowed {
									passed.Add(1)
								}
							}
						})
					}
				}
				all.Wait()
				if passed.Load() != 500 {
					t.Errorf("%d passed", passed.Load())
				}
			})
		})
	}
}

// The classes of failure, each from a server that fails that way.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	ask := func(t *testing.T, server *redistest.Server, timeout time.Duration) error {
		t.Helper()
		client, err := redisconn.Connect(server.URL(), redisconn.Options{Timeout: timeout})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		l := newLimiter(t, client)
		l.timeout = timeout
		_, err = l.Allow(t.Context(), validLimit(), "k", 1)
		return err
	}
	set := func(t *testing.T, server *redistest.Server, name, value string) {
		t.Helper()
		if err := server.Client().ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		fail   func(t *testing.T, s *redistest.Server)
		args   []string
		prefix string
		stays  bool
		short  bool // it ends by the timeout only
	}{
		"killed": {fail: func(_ *testing.T, s *redistest.Server) { s.Kill() }},
		"frozen": {fail: func(_ *testing.T, s *redistest.Server) { s.Stop() }, short: true},
		"full":   {fail: func(t *testing.T, s *redistest.Server) { set(t, s, "maxmemory", "1") }, prefix: "OOM"},
		"a replica": {fail: func(t *testing.T, s *redistest.Server) {
			if err := s.Client().Do(t.Context(), "replicaof", "127.0.0.1", "1").Err(); err != nil {
				t.Fatal(err)
			}
		}, prefix: "READONLY"},
		"without replicas": {fail: func(t *testing.T, s *redistest.Server) { set(t, s, "min-replicas-to-write", "1") }, prefix: "NOREPLICAS"},
		"no connection left": {fail: func(t *testing.T, s *redistest.Server) {
			set(t, s, "maxclients", "1")
		}},
		"without the password": {fail: func(*testing.T, *redistest.Server) {}, args: []string{"--requirepass", "secret"}},
		"a wrong type": {fail: func(t *testing.T, s *redistest.Server) {
			if err := s.Client().LPush(t.Context(), "tundish:{l:l}:k", 1).Err(); err != nil {
				t.Fatal(err)
			}
		}, prefix: "WRONGTYPE", stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, test.args...)
			test.fail(t, server)
			timeout := 10 * time.Second
			if test.short {
				timeout = 100 * time.Millisecond
			}
			err := ask(t, server, timeout)
			if err == nil || redisconn.Unavailable(err) == test.stays || test.prefix != "" && !redis.HasErrorPrefix(err, test.prefix) {
				t.Errorf("unavailable: %t, %v", redisconn.Unavailable(err), err)
			}
		})
	}
}
