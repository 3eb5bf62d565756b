package admission

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/redisconn"
)

// Every outcome is counted once, under the names of the configuration only.
func TestMetrics(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	reg := prometheus.NewRegistry()
	metrics := NewMetrics(reg, []string{"l", "shadow", "open", "local"})
	shadow := hourly("shadow", 1)
	shadow.Mode, shadow.OnMissing = Shadow, Exempt
	client := connected(t, server)
	l, err := NewLimiter(LimiterConfig{
		Redis: client, Metrics: metrics, Timeout: 10 * time.Second,
		Limits: []Limit{hourly("l", 2), shadow, daily("open", 1, Open), daily("local", 1, Local)},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	ada := Identity{Caller: "ada"}
	ask := func(name string, id Identity, n int64, times int) {
		for range times {
			_, _ = l.Ask(t.Context(), name, id, n)
		}
	}
	ask("l", ada, 1, 5) // 2 allowed, 1 refused by Redis, 2 from memory
	ask("l", ada, 3, 1)
	ask("l", Identity{}, 1, 1)
	ask("shadow", ada, 1, 3)
	ask("shadow", Identity{}, 1, 1)
	_, _ = l.Allow(t.Context(), daily("somebody-elses", 1, Closed), "k", 1)
	server.Kill()
	ask("open", ada, 1, 1)
	ask("local", ada, 1, 2)
	ask("l", Identity{Caller: "bob"}, 1, 3)
	for label, want := range map[string]float64{
		"l allowed": 2, "l refused": 3, "l impossible": 1, "l error": 4,
		"shadow allowed": 1, "shadow shadow_refused": 2, "shadow exempt": 1,
		"open open": 1, "local local_allowed": 1, "local local_refused": 1, "other allowed": 1,
	} {
		limit, outcome, _ := strings.Cut(label, " ")
		if got := testutil.ToFloat64(metrics.decisions.WithLabelValues(limit, outcome)); got != want {
			t.Errorf("%s: %v, want %v", label, got, want)
		}
	}
	if got := testutil.ToFloat64(metrics.refusals.WithLabelValues("l")); got != 2 {
		t.Errorf("%v local refusals", got)
	}
	if got := testutil.ToFloat64(metrics.breaker); got != 2 {
		t.Errorf("breaker state %v", got)
	}
	if n := testutil.CollectAndCount(metrics.decisions); n != 5*len(outcomes) {
		t.Errorf("%d series", n)
	}
	var none *Metrics
	none.observe("l", "", &Decision{}, nil, time.Now())
	none.SetBreaker(redisconn.BreakerClosed)
}

// The estimate of a limit's keys is near their number.
func TestKeyCollector(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client()
	pipe := client.Pipeline()
	for i := range 1000 {
		key := fmt.Sprintf("tundish:{l:a}:%d", i)
		switch {
		case i >= 900:
			key = fmt.Sprintf("tundish:{b}:b:b:body%d", i)
		case i >= 800:
			key = fmt.Sprintf("tundish:{l:c}:%d", i)
		case i >= 500:
			key = fmt.Sprintf("tundish:{b}:b:b:limit:b:%d", i)
		}
		pipe.Set(t.Context(), key, 1, 0)
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := NewKeyCollector(t.Context(), client, []string{"a", "b", "none"})
	counts := c.sample()
	for name, want := range map[string]float64{"a": 500, "b": 300, "other": 100, "none": 0} {
		if got, ok := counts[name]; !ok || got < want-200 || got > want+200 { // six standard deviations
			t.Errorf("%s: %v keys, want about %v", name, got, want)
		}
	}
	if n := testutil.CollectAndCount(c); n != 4 {
		t.Errorf("%d series", n)
	}
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if counts := c.sample(); counts["a"] != 0 || len(counts) != 4 {
		t.Errorf("of an empty Redis: %v", counts)
	}
	for key, want := range map[string]string{
		"tundish:{l:a}:conf": "", "tundish:{l:a}:all": "a", "tundish:{b}:b:b:limit:x:k:limit:y:": "x", "tundish:{b}:b:b:q:normal::limit:x:y": "",
		"tundish:{pool}:b:b:conf": "", "tundish:instances": "", "other": "", "tundish:{l:a": "",
	} {
		if got, ok := limitOf(key); ok != (want != "") || ok && got != want {
			t.Errorf("%s: %q, %t", key, got, ok)
		}
	}
}

// A user without the rights to draw keys is refused once, and then not asked again.
func TestKeyCollectorRefused(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	if err := server.Client().Set(t.Context(), "tundish:{l:a}:k", 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	for _, right := range []string{"dbsize", "randomkey"} {
		if err := server.Client().Do(t.Context(), "ACL", "SETUSER", "app", "reset", "on", "nopass", "~tundish:*", "+@all", "-"+right).Err(); err != nil {
			t.Fatal(err)
		}
		options := *server.Client().Options()
		options.Username, options.Password = "app", "any"
		client := redis.NewClient(&options)
		defer client.Close()
		c := NewKeyCollector(t.Context(), client, []string{"a"})
		if n := testutil.CollectAndCount(c); n != 0 {
			t.Errorf("without %s: %d series", right, n)
		}
		c.SetLimits([]string{"a", "b"})
		if err := server.Client().ACLLogReset(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		_ = testutil.CollectAndCount(c)
		if log := server.Client().ACLLog(t.Context(), 10).Val(); len(log) != 0 {
			t.Errorf("without %s: asked again", right)
		}
	}
}

// A limit that comes is told apart, and the series of one that left go.
func TestSetLimits(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	m := NewMetrics(reg, []string{"a", "b"})
	m.SetLimits([]string{"b", "c"})
	for _, name := range []string{"a", "b", "c"} {
		m.observe(name, "", &Decision{Allowed: true}, nil, time.Now())
	}
	for name, want := range map[string]float64{"a": 0, "b": 1, "c": 1, otherLimits: 1} {
		if got := testutil.ToFloat64(m.decisions.WithLabelValues(name, string(outcomeAllowed))); got != want {
			t.Errorf("limit %s: %v allowed, want %v", name, got, want)
		}
	}
	c := NewKeyCollector(t.Context(), redistest.Start(t).Client(), []string{"a"})
	c.SetLimits([]string{"b"})
	counts := c.sample()
	if _, told := counts["b"]; !told || len(counts) != 2 {
		t.Errorf("the keys of limits: %v", counts)
	}
	var none *Metrics
	none.SetLimits(nil)
}
