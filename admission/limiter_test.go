package admission

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/redistest"
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
		if d, err := limiter.Allow(t.Context(), validLimit(), "k", n); err == nil || Unavailable(err) || d != (Decision{}) {
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
		client, err := Connect(server.URL(), ConnectOptions{Timeout: timeout})
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
		"a wrong password": {fail: func(*testing.T, *redistest.Server) {}, args: []string{"--requirepass", "secret"}, stays: true},
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
			if err == nil || Unavailable(err) == test.stays || test.prefix != "" && !redis.HasErrorPrefix(err, test.prefix) {
				t.Errorf("unavailable: %t, %v", Unavailable(err), err)
			}
		})
	}
}

type answerOf string

func (a answerOf) Error() string { return string(a) }
func (answerOf) RedisError()     {}

func TestUnavailableByText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"LOADING Redis is loading the dataset in memory": true, "BUSY Redis is busy running a script": true,
		"MISCONF Redis is configured to save RDB snapshots": true, "CLUSTERDOWN The cluster is down": true,
		"TRYAGAIN Multiple keys request during rehashing of slot": true, "MASTERDOWN Link with MASTER is down": true,
		"ERR max number of clients reached": true, "MOVED 3999 127.0.0.1:6381": true, "ASK 3999 127.0.0.1:6381": true,
		"ERR unknown command": false, "NOSCRIPT No matching script": false, "WRONGPASS invalid username-password pair": false,
		"NOPERM this user has no permissions": false, "BUSYKEY Target key name already exists.": false,
	} {
		if got := Unavailable(answerOf(text)); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
	if Unavailable(nil) || Unavailable(errors.New("reply is a string")) || Unavailable(context.Canceled) || Unavailable(redis.Nil) {
		t.Error("that is not a matter of Redis")
	}
	if !Unavailable(context.DeadlineExceeded) || !Unavailable(redis.ErrPoolTimeout) {
		t.Error("too slow is unavailable")
	}
}

func TestRedactURL(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"redis://host:6379/0":               "redis://host:6379/0",
		"redis://user:secret@host:6379":     "redis://user:***@host:6379",
		"rediss://:secret@host":             "rediss://:***@host",
		"redis://u:se@cr:et@host/1":         "redis://u:***@host/1",
		"embedded":                          "embedded",
		"user:secret@host:6379":             "***@host:6379",
		"redis+cluster://u:secret@h1,h2":    "redis+cluster://u:***@h1,h2",
		"redis://secret@host":               "redis://***@host",
		"redis://secret:@host":              "redis://***@host",
		"redis://u:secret@h/0?a=b&password": "redis://u:***@h/0?a=b&password",
		"redis://h/0?a=b&Password=secret":   "redis://h/0?a=b&Password=***",
		"redis+sentinel://u:s,t@h1,h2/m":    "redis+sentinel://u:***@h1,h2/m",
	} {
		if got := RedactURL(url); got != want {
			t.Errorf("%s is shown as %s, want %s", url, got, want)
		}
	}
}

func TestConnect(t *testing.T) {
	t.Parallel()
	client, err := Connect("redis://user:old@host:1/2", ConnectOptions{Password: "new"})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	o := client.(*redis.Client).Options()
	if o.Addr != "host:1" || o.DB != 2 || o.Username != "user" || o.Password != "new" {
		t.Errorf("address %s, db %d, user %s, password %s", o.Addr, o.DB, o.Username, o.Password)
	}
	// go-redis turns -1 into 0: no retry.
	if o.MaxRetries != 0 || !o.ContextTimeoutEnabled || o.DialTimeout != time.Second || o.ReadTimeout != time.Second ||
		o.WriteTimeout != time.Second || o.PoolTimeout != time.Second || o.PoolSize != 64 || !o.DisableIdentity ||
		o.MaintNotificationsConfig == nil || string(o.MaintNotificationsConfig.Mode) != "disabled" || o.DialerRetries != 1 {
		t.Errorf("options %+v", o)
	}
	other, err := Connect("redis://host", ConnectOptions{Timeout: 5 * time.Second, PoolSize: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if o := other.(*redis.Client).Options(); o.ReadTimeout != 5*time.Second || o.PoolSize != 3 {
		t.Errorf("options %+v", o)
	}
	for _, url := range []string{"", "host:6379", "http://u:secret@host", "redis://u:secret@ho st", "redis://u:secret@host/x", "redis://u:sec%zzret@host"} {
		if _, err := Connect(url, ConnectOptions{}); err == nil || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "sec%zz") {
			t.Errorf("Connect(%q): %v", url, err)
		}
	}
}
