package admission

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/redisconn"
)

func daily(name string, n int64, mode OnStoreFailure) Limit {
	return Limit{Name: name, Limit: Rate{Count: n, Per: 24 * time.Hour, Unit: UnitRequests}, OnStoreFailure: mode}
}

// connected is a client as programs have it.
func connected(t *testing.T, server *redistest.Server) redis.UniversalClient {
	t.Helper()
	client, err := redisconn.Connect(server.URL(), redisconn.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// until asks until done says so, and fails after half a minute.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); {
		if time.Now().After(deadline) {
			t.Fatalf("it did not happen within 30 s: %s", what)
		}
	}
}

// A Redis that is frozen: each limit answers as it says, what is under way ends
// within the timeout, and then everything takes no time; afterwards Redis
// decides again, and knows what was let through.
func TestFrozenRedis(t *testing.T) {
	t.Parallel()
	// The promise is measured where tests may take their time. How long a machine that is
	// busy needs for an answer says nothing; that there is one, does.
	bound, tries := 30*time.Second, 1
	if redistest.Soak {
		bound, tries = 500*time.Millisecond, 3
	}
	slowest := bound + 1
	for try := 0; try < tries && slowest > bound && !t.Failed(); try++ { // a machine that stalls is slow, too
		t.Run(fmt.Sprint("try", try), func(t *testing.T) { slowest = frozenRedis(t) })
	}
	if slowest > bound {
		t.Errorf("%d times an answer took longer than %s, this time %s", tries, bound, slowest)
	}
}

// frozenRedis returns what the slowest answer took while Redis was frozen.
func frozenRedis(t *testing.T) time.Duration {
	server := redistest.Start(t)
	shadow := daily("shadow", 100, Closed)
	shadow.Mode = Shadow
	l := newLimiter(t, connected(t, server), daily("closed", 100, Closed), daily("open", 100, Open), daily("local", 100, Local), shadow)
	names := []string{"closed", "open", "local", "shadow"}
	for _, name := range names {
		for range 40 {
			if d, err := l.Ask(t.Context(), name, Identity{}, 1); err != nil || !d.Allowed {
				t.Fatal(name, d, err)
			}
		}
	}
	l.background.Wait()
	l.timeout = DefaultLimiterTimeout // it is what this test is about
	server.Stop()
	defer server.Cont()
	var all sync.WaitGroup
	var mu sync.Mutex
	slowest := time.Duration(0)
	stopped := time.Now()
	for _, name := range names {
		for range 8 {
			all.Go(func() {
				pace := time.NewTicker(2 * time.Millisecond)
				defer pace.Stop()
				for time.Since(stopped) < 2*time.Second {
					<-pace.C
					start := time.Now()
					d, err := l.Ask(t.Context(), name, Identity{}, 1)
					took := time.Since(start)
					mu.Lock()
					slowest = max(slowest, took)
					mu.Unlock()
					switch {
					case name == "closed" && !redisconn.Unavailable(err):
						t.Errorf("closed: %+v, %v", d, err)
					case (name == "open" || name == "shadow") && (err != nil || !d.Allowed || d.Source != Undecided):
						t.Errorf("%s: %+v, %v", name, d, err)
					case name == "local" && (err != nil || d.Source != FromLocal || !d.Allowed && d.RetryAfter <= 0):
						t.Errorf("local: %+v, %v", d, err)
					}
				}
			})
		}
	}
	all.Wait()
	if !l.breaker.Shaky() {
		t.Error("the breaker is closed")
	}
	// 40 were taken, so 60 were left to this only instance.
	state, _ := l.locals.of.Peek("tundish:{l:local}:all")
	if state.admitted != 60 {
		t.Errorf("%d were let through locally, want 60", state.admitted)
	}
	fast := time.Now()
	for range 1000 {
		if _, err := l.Ask(t.Context(), "closed", Identity{}, 1); !redisconn.Unavailable(err) {
			t.Fatal(err)
		}
	}
	t.Logf("slowest answer %s; with an open breaker %s each", slowest, time.Since(fast)/1000)

	server.Cont()
	back := time.Now()
	until(t, "the breaker closes", func() bool {
		_, err := l.Ask(t.Context(), "closed", Identity{}, 1)
		return err == nil
	})
	t.Logf("decided by Redis again %s after it was back", time.Since(back))
	l.background.Wait()
	until(t, "Redis is told", func() bool {
		_, _ = l.Ask(t.Context(), "open", Identity{}, 1)
		return l.locals.owing.Load() == 0
	})
	l.background.Wait()
	if d, err := newLimiter(t, server.Client()).Allow(t.Context(), daily("local", 100, Local), "all", 1); err != nil || d.Allowed {
		t.Errorf("%+v, %v: 40 and 60 were let through of 100", d, err)
	}
	return slowest
}

// A Redis that is gone before the first question.
func TestRedisNeverThere(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := connected(t, server)
	server.Kill()
	l := newLimiter(t, client, daily("closed", 10, Closed), daily("open", 10, Open), daily("local", 10, Local))
	if got := allowed(t, func() (Decision, error) { return l.Ask(t.Context(), "local", Identity{}, 1) }); got != 10 {
		t.Errorf("local: %d allowed, want 10", got)
	}
	if d, err := l.Ask(t.Context(), "local", Identity{}, 11); err != nil || !d.Impossible {
		t.Errorf("%+v, %v", d, err)
	}
	if d, err := l.Ask(t.Context(), "open", Identity{}, 1); err != nil || !d.Allowed {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := l.Ask(t.Context(), "closed", Identity{}, 1); !redisconn.Unavailable(err) {
		t.Error(err)
	}
	if err := l.Reconfigure(t.Context(), []Limit{daily("local", 20, Local)}, 1); !redisconn.Unavailable(err) {
		t.Error(err)
	}
	if _, err := l.Override(t.Context(), "local", Patch{Limit: hours(5)}); !redisconn.Unavailable(err) {
		t.Error(err)
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	until(t, "Redis decides", func() bool {
		d, err := l.Ask(t.Context(), "local", Identity{}, 1)
		return err == nil && d.Source == FromStore
	})
	// 10 of 20 were let through and are taken with the first question.
	if d, err := l.Ask(t.Context(), "local", Identity{}, 1); err != nil || d.Remaining != 8 {
		t.Errorf("%+v, %v", d, err)
	}
}

// Redis decides again after the break, and instances share while it lasts.
func TestInstancesShare(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var limiters []*Limiter
	for range 4 {
		l := newLimiter(t, connected(t, server), daily("l", 100, Local))
		if _, err := l.Ask(t.Context(), "l", Identity{}, 1); err != nil {
			t.Fatal(err)
		}
		l.background.Wait()
		limiters = append(limiters, l)
	}
	for _, l := range limiters { // five seconds later
		l.presence.next.Store(0)
		if _, err := l.Ask(t.Context(), "l", Identity{}, 1); err != nil {
			t.Fatal(err)
		}
		l.background.Wait()
		if n := l.presence.instances(); n != 4 {
			t.Errorf("%d instances", n)
		}
	}
	server.Kill()
	total := int64(0)
	for _, l := range limiters {
		n := allowed(t, func() (Decision, error) { return l.Ask(t.Context(), "l", Identity{}, 1) })
		if n < 20 || n > 25 {
			t.Errorf("%d allowed by one of four", n)
		}
		total += n
	}
	if total > 100-8+4 { // each knew of one question less or more
		t.Errorf("%d allowed by all, 92 were left", total)
	}
}

// The share of an instance by an explicit clock.
func TestLocalShare(t *testing.T) {
	t.Parallel()
	f := compile(Limit{Name: "l", Limit: Rate{Count: 100, Per: time.Second, Unit: UnitRequests}, OnStoreFailure: Local}.WithDefaults(), "", "")
	locals, now := newLocals(), time.Now()
	const fortieth = 40*time.Millisecond + time.Microsecond // one, and a microsecond for rounding
	for i, c := range []struct {
		after     time.Duration
		cost      int64
		allowed   bool
		remaining int64
		wait      time.Duration
	}{
		{0, 20, true, 5, 0}, // of 100 with 4 instances
		{0, 6, false, 5, fortieth},
		{fortieth, 6, true, 0, 0},
		{2 * time.Second, 25, true, 0, 0},
		{2 * time.Second, 50, true, 0, 0}, // above the share: when that is full, and then it is paid off
		{time.Second, 1, false, 0, fortieth},
		{fortieth, 1, true, 0, 0},
	} {
		now = now.Add(c.after)
		d := locals.decide(nil, f, "k", c.cost, 4, now)
		if d.Allowed != c.allowed || d.Remaining != c.remaining || (d.RetryAfter-c.wait).Abs() > 2*time.Microsecond {
			t.Errorf("step %d: %+v", i, d)
		}
	}
}

// Limits that share a name need not be of one kind: each key is reported to its own.
func TestReportsOfSeveralKinds(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, redistest.Start(t).Client())
	limits := []Limit{daily("l", 10, Local), daily("l", 10, Local), daily("l", 10, Local)}
	limits[1].Algorithm, limits[2].MaxKeys = FixedWindow, 5
	for i, limit := range limits {
		g := l.byValue("l")
		limit = limit.WithDefaults()
		f, err := g.compiledOf(&limit)
		if err != nil {
			t.Fatal(err)
		}
		l.locals.decide(g, f, f.prefix+fmt.Sprint("key-", i), 3, 1, time.Now())
	}
	for range limits {
		if n, err := l.report(t.Context()); n != 1 || err != nil {
			t.Errorf("%d reported, %v", n, err)
		}
	}
	for i, limit := range limits {
		if d, err := l.Allow(t.Context(), limit, fmt.Sprint("key-", i), 1); err != nil || d.Remaining != 6 {
			t.Errorf("limit %d: %+v, %v: want 6 of 10 left after 3 and 1", i, d, err)
		}
	}
}

// An answer of Redis that is an error is not the store being away.
func TestErrorsThatStay(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client()
	l := newLimiter(t, client, daily("open", 10, Open))
	if err := client.LPush(t.Context(), "tundish:{l:open}:all", 1).Err(); err != nil {
		t.Fatal(err)
	}
	for range 3 * redisconn.DefaultBreakerFailures {
		if _, err := l.Ask(t.Context(), "open", Identity{}, 1); err == nil || redisconn.Unavailable(err) {
			t.Fatal(err)
		}
	}
	if l.breaker.Shaky() {
		t.Error("the breaker opened")
	}
}
