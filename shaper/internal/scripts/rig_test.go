package scripts_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/lua"
)

// epoch is where the clock of a miniredis stands: sixteen digits, of which
// tostring would lose the last two.
const epoch = 1783228800123456

const second = 1_000_000 // microseconds

// tb is what a rig needs of *testing.T; *rapid.T has it too.
type tb interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
	Logf(format string, args ...any)
}

// rig is one bucket on one server, with a Go function a script.
type rig struct {
	t    tb
	ctx  context.Context
	c    redis.UniversalClient
	mini *miniredis.Miniredis // nil on a real server
	name string

	clock *realClock // of a real server

	hasFlows  bool // see configureFlows
	hasGroups bool // see configureGroups

	pool string // of the bucket, see configurePool

	steps int64 // of the engine's clock, as the last claim told them

	shared []int64 // states of the last question to allow or ask instead of which the shared one was asked

	disabled []string // flows that settle has disabled
	breakers []string // what settle said of breakers

	asker    string // the dispatcher that reserves, "" means "d"
	expected int64  // the latest time that it expects
}

// onBoth runs a test beside others, on a real server and on a miniredis. The tests that use it have a miniredis run each script, and each command with each
// of its options that scripts run: embedded_test.go says in CI what lacks.
func onBoth(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	t.Parallel()
	if !embedded {
		t.Run("redis", func(t *testing.T) {
			t.Parallel()
			test(t, realRig(t))
		})
	}
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		r := miniRig(t)
		observe(t, r.mini, &ranOnBoth)
		test(t, r)
	})
}

// onBothInCI runs a test on a real server, and in `make embedded` on a miniredis, which takes three times as long.
func onBothInCI(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	t.Parallel()
	if !embedded {
		t.Run("redis", func(t *testing.T) {
			t.Parallel()
			test(t, realRig(t))
		})
		return
	}
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		r := miniRig(t)
		observe(t, r.mini, &ranInCI)
		test(t, r)
	})
}

// onBothForLong is onBothInCI of a test in which buckets work for long: on a miniredis in `make soak` alone.
func onBothForLong(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	if !embedded || redistest.Soak {
		onBothInCI(t, test)
	}
}

func miniRig(t *testing.T) *rig {
	t.Helper()
	mini := redistest.Miniredis(t)
	mini.SetTime(time.UnixMicro(epoch))
	return &rig{t: t, ctx: t.Context(), c: redistest.ClientOf(t, mini), mini: mini, name: "b"}
}

// onReal runs a test on a real server.
func onReal(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	test(t, realRig(t))
}

// realRig is a bucket on a real server, which takes a tenth of the time of a
// miniredis.
func realRig(t *testing.T, args ...string) *rig {
	t.Helper()
	if embedded {
		t.Skip("make test runs it")
	}
	client := redistest.Start(t, args...).Client()
	lua.AsFunctions(client, func(err error) { t.Error(err) }) // a miniredis has none
	clock := clocked(client)
	t.Cleanup(func() { _ = clock.c.Close() })
	return &rig{t: t, ctx: t.Context(), c: client, clock: clock, name: "b"}
}

// fresh is another bucket on the same server, for another round of a property.
func (r *rig) fresh(t tb, name string) *rig {
	return &rig{t: t, ctx: r.ctx, c: r.c, mini: r.mini, clock: r.clock, name: name}
}

const (
	queueKey = "q:normal:"
	laterKey = "later:"
)

func (r *rig) run(script *lua.Script, keys []string, args ...any) any {
	r.t.Helper()
	reply, err := script.Run(r.ctx, r.c, nil, keys, args...)
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	return reply
}

func (r *rig) reader(script *lua.Script, keys []string, args ...any) *lua.Reader {
	r.t.Helper()
	reader := lua.NewReader(r.run(script, keys, args...))
	if status := reader.Int(); status != 0 || reader.Err() != nil {
		r.t.Fatalf("script %s answered %d, %v", script.Name(), status, reader.Err())
	}
	return reader
}

func (r *rig) ok(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatalf("%v", err)
	}
}

// now is the server's clock.
func (r *rig) now() int64 {
	r.t.Helper()
	if r.clock != nil {
		return r.clock.at.Load()
	}
	at := must.Get(r.c.Time(r.ctx).Result())(r.t)
	return at.UnixMicro()
}

// pass lets time go by.
func (r *rig) pass(micros int64) {
	r.t.Helper()
	r.setTime(r.now() + micros)
}

func (r *rig) setTime(micros int64) {
	r.t.Helper()
	if r.clock != nil {
		r.clock.at.Store(micros)
		return
	}
	r.mini.SetTime(time.UnixMicro(micros))
}

// settings of a bucket; a zero means the default.
type settings struct {
	rateCount, ratePer, burst, capacity, scheduled, inFlight int64
	shed                                                     [3]int64 // high, normal, low: percent; 0 means 100
	dedupe                                                   int64    // microseconds; -1 none
	dedupeMax, revision                                      int64
}

func (r *rig) configure(s settings) []int64 {
	r.t.Helper()
	or := func(value, fallback int64) int64 {
		if value == 0 {
			return fallback
		}
		return value
	}
	reply := must.Get(lua.Integers(r.run(lua.Configure, r.keys("settings", "body", "dead"), 1, s.revision, "tundish:wake", r.name, 1, "test", 0,
		"rate_count", or(s.rateCount, 1000), "rate_per", or(s.ratePer, second), "burst", or(s.burst, 1),
		"capacity", or(s.capacity, 1000), "scheduled_capacity", or(s.scheduled, 1000), "max_in_flight", or(s.inFlight, 1000),
		"shed_high", or(s.shed[0], 100), "shed_normal", or(s.shed[1], 100), "shed_low", or(s.shed[2], 100),
		"dedupe_window", max(or(s.dedupe, 3600*second), 0), "dedupe_max", or(s.dedupeMax, 1000),
		"results_max", 10_000, "results_bytes", 64<<20)))(r.t)
	return reply
}

// limit is an admission rule with its three numbers; without an algorithm, a
// token bucket: a micro-tokens every b microseconds, up to full.
type limit struct {
	a, b, full int64
	key        string
	algorithm  string
	shadow     int // 1 in shadow mode
	max, life  int64
	namer      string // of a question on its own: digits of who names the key
}

// args are those of a limit in the scripts.
func (l limit) args() []any {
	algorithm := l.algorithm
	if algorithm == "" {
		algorithm = "token_bucket"
	}
	return []any{algorithm, l.a, l.b, l.full, l.max, max(l.life, 1)}
}

// entry is a job to enqueue.
type entry struct {
	id      string
	content string // what the fingerprint is of
	made    bool   // the id was made by the client
	due     string
	cost    int64
	maxWait string // microseconds

	priority       int    // 0 means normal
	flow           string // in a bucket with flows, see configureFlows
	group          string // in a bucket with groups, see configureGroups
	expires        int64  // after so many microseconds; 0 never
	callback       bool   // it has one
	agrees         string // with others in this
	units          string // what it reserves of budgets
	selfDispatched bool   // another process than a dispatcher sends it
	caller         string // its letters
	more           string // of its header, behind its flow and group
}

func (e entry) expiry() string {
	text := ""
	if e.expires != 0 {
		text = fmt.Sprint("~", e.expires)
	}
	if e.caller != "" {
		text = "~" + strings.TrimPrefix(text, "~") + e.caller
	}
	if e.agrees != "" {
		text = "~" + strings.TrimPrefix(text, "~") + "=" + e.agrees
	}
	if e.units != "" {
		if e.agrees == "" {
			text = "~" + strings.TrimPrefix(text, "~") + "="
		}
		text += "$" + e.units
	}
	if e.selfDispatched {
		text = "~" + strings.TrimPrefix(text, "~") + "=!>"
	}
	if e.callback {
		text += "^"
	}
	return text
}

// header is what Go packs before the payload.
func (e entry) header() string {
	if e.flow == "" && e.group == "" {
		return ""
	}
	text, err := json.Marshal(jobNames{Flow: e.flow, Group: e.group})
	if err != nil {
		panic(err) // strings always marshal
	}
	return strings.TrimSuffix(string(text), "}") + e.more + "}"
}

func (e entry) mark() string {
	kind := "c"
	if e.made {
		kind = "g"
	}
	return fmt.Sprintf("%011s", e.content) + kind + string("nkhnl"[e.priority])
}

// answer is what enqueue.lua says of a job.
type answer struct {
	code, position, eta, wait int64
	budget                    string     // of OVER_BUDGET and WAITS_FOR_BUDGET, in place of the position
	limits                    [][4]int64 // verdict, remaining, wait, reset
}

func (r *rig) enqueue(limits []limit, jobs ...entry) []answer {
	r.t.Helper()
	keys, args := r.enqueueArgs(limits, jobs)
	in := r.reader(lua.Enqueue, keys, args...)
	in.Int() // now
	must.Be(r.t, in.Int(), 0, "jobs were taken for alike")
	answers := make([]answer, len(jobs))
	for i := range answers {
		a := answer{code: in.Int()}
		if a.code == lua.OverBudget || a.code == lua.WaitsForBudget {
			a.budget = in.Text()
		} else {
			a.position = in.Int()
		}
		a.eta, a.wait = in.Int(), in.Int()
		for range limits {
			a.limits = append(a.limits, [4]int64{in.Int(), in.Int(), in.Int(), in.Int()})
		}
		answers[i] = a
	}
	if in.Err() != nil || in.Left() != 0 {
		r.t.Fatalf("enqueue: %v, %d items too many", in.Err(), in.Left())
	}
	return answers
}

// put enqueues jobs of these ids, all of which must get in.
func (r *rig) put(ids ...string) {
	r.t.Helper()
	r.putAt("", ids...)
}

func (r *rig) putAt(due string, ids ...string) {
	r.t.Helper()
	jobs := make([]entry, len(ids))
	for i, id := range ids {
		jobs[i] = entry{id: id, due: due}
	}
	for i, a := range r.enqueue(nil, jobs...) {
		if a.code > 2 {
			r.t.Fatalf("enqueue %s: code %d", ids[i], a.code)
		}
	}
}

func numbered(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("j%d", i)
	}
	return ids
}
