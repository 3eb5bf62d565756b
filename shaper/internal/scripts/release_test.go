package scripts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/stored"
	"github.com/tundish-io/tundish/lua"
)

// words are the text of a scope, with times of the engine's clock: see downstream.lua.
type words struct {
	till, rateCount, ratePer, breaker, failures, opened int64
}

func (s words) text() string {
	return stored.Downstream{Till: s.till, RateCount: s.rateCount, RatePer: s.ratePer, Breaker: s.breaker, Failures: s.failures,
		Cut: 1, Since: 1, Grown: 1, Opened: s.opened, First: s.opened, ChangedAt: s.till, Reason: "http_429"}.String()
}

// say has the downstream of a flow say something.
func (r *rig) say(flow string, s words) {
	r.t.Helper()
	f := r.flow(flow)
	r.hset("flows", flow, "@"+s.text()+" "+f.text())
}

// A flow that is released goes on at once, and nothing is known of its downstream any more.
func TestReleaseOfAFlow(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{}, flowSettings{})
		r.own("f", "- - - 5 - - -")
		r.place(placed{id: "n1", flow: "f"})
		for name, s := range map[string]words{
			"held":      {till: r.now() + 3600*second, rateCount: 5, ratePer: second},
			"open":      {till: r.now() + 3600*second, breaker: 1, failures: 10, opened: r.now()},
			"half-open": {till: r.now() + 3600*second, breaker: 2, failures: 10, opened: r.now()},
		} {
			plain := r.flow("f")
			r.say("f", s)
			r.setTurn("f", s.till)
			var before string
			release := func() string {
				in := r.reader(lua.ControlFlow, r.keysOf(lua.ControlFlow, "f"), "tundish:wake", r.name, "f", "release", 1)
				_, _ = in.Int(), in.Int()
				own, after, said := in.Text(), in.Text(), in.Text()
				r.ok(in.Err())
				if own != after || after == "" {
					t.Errorf("%s: settings were %q, now %q", name, own, after)
				}
				return said
			}
			if !r.wakes(func() { before = release() }) {
				t.Errorf("%s: no dispatcher is woken", name)
			}
			must.Equal(t, before, s.text(), "%s: it said", name)
			if turn := r.turn("f"); turn == 0 || turn > r.now() {
				t.Errorf("%s: its turn is %d, now %d", name, turn, r.now())
			}
			if got := r.flow("f"); got.unfinished != plain.unfinished || got.filled != plain.filled {
				t.Errorf("%s: %+v, before %+v", name, got, plain)
			}
			must.Equal(t, release(), "", "%s: sent twice", name)
		}
	})
}

// Hooks are told once that a breaker which was open lets jobs depart again, though an operator released it. A hold is none, and a
// disabled flow stays disabled.
func TestReleaseTellsHooks(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{}, flowSettings{})
		r.notes(allEvents)
		open := func() words { return words{till: r.now() + 3600*second, breaker: 1, failures: 10, opened: r.now()} }
		for _, flow := range []string{"open", "held", "off"} {
			r.place(placed{id: flow, flow: flow})
			s := open()
			if flow == "held" {
				s = words{till: s.till}
			}
			r.say(flow, s)
		}
		r.own("off", fmt.Sprintf("- - - - - - - %d/gone", r.now()))
		r.hset("pace", "down", open().text())
		for range 2 { // also sent twice
			for _, flow := range []string{"open", "held", "off"} {
				r.controlFlow(flow, "release")
			}
			r.control("release", "anna")
		}
		events := r.moveEvents()
		must.Equal(t, describe(events), "flow.recovered open=1, flow.recovered=1", "told is")
		for _, e := range events {
			if !strings.Contains(e.detail, `"reason":"released"`) {
				t.Errorf("%s: %s", e.name, e.detail)
			}
		}
	})
}

// Nothing is left of a flow that has no jobs.
func TestReleaseOfAnIdleFlow(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{}, flowSettings{})
		r.say("f", words{till: r.now() + 3600*second})
		r.controlFlow("f", "release")
		if got := r.c.HExists(r.ctx, r.key("flows"), "f").Val(); got {
			t.Error("the flow is still known")
		}
	})
}

// A job tells what its downstream says, and its estimate minds that.
func TestInspectWhatTheDownstreamSays(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		const ahead = 7 * second // of the engine's clock
		r.configureFlows(settings{rateCount: 10}, flowSettings{rateCount: 1, ratePer: 4 * second})
		r.hset("pace", "offset", ahead)
		r.place(placed{id: "n1", flow: "f"}, placed{id: "n2", flow: "f"})
		plain := r.job("n2")
		now := r.now()
		flow, bucket := words{till: now + ahead + 60*second, rateCount: 1, ratePer: 20 * second}, words{till: now + ahead + 30*second}
		r.say("f", flow)
		r.hset("pace", "down", bucket.text())
		j := r.job("n2")
		if j.offset != ahead || j.bucketScope != (scopeSeen{bucket.text(), 10, second}) || j.flowScope != (scopeSeen{flow.text(), 1, 4 * second}) || j.poolScope.said != "" {
			t.Errorf("%+v", j)
		}
		if j.instant != now+60*second+20*second || j.ofFlow.ready != plain.ofFlow.ready {
			t.Errorf("it may leave at %d, by the rate of its flow at %d; now %d", j.instant, j.ofFlow.ready, now)
		}
		if b := r.inspect(); b.said != bucket.text() || b.offset != ahead {
			t.Errorf("the bucket: %+v", b)
		}
		r.hset("pace", "down", words{till: now + ahead + 90*second}.text())
		must.Equal(t, r.job("n2").instant, now+90*second+20*second, "with a longer hold of the bucket it may leave at, now %d", now)

		// The pace is released, and woken dispatchers look again.
		var before []any
		if !r.wakes(func() { before = r.control("release", "anna") }) || len(before) != 3 || before[2] != int64(ahead) || before[1] == "" {
			t.Errorf("released: %v", before)
		}
		if again := r.control("release", "anna"); again[1] != "" || r.inspect().said != "" {
			t.Errorf("released again: %v", again)
		}
	})
}

func TestReleaseOfAPool(t *testing.T) {
	onBothInCI(t, func(t *testing.T, base *rig) {
		r := base.pooled(t, "pool", "a", 1, settings{rateCount: 1000})
		r.configurePool(poolSettings{rateCount: 10, burst: 1})
		r.put("n1")
		now := r.now()
		s := words{till: now + 60*second, rateCount: 1, ratePer: second}
		r.ok(r.c.HSet(r.ctx, r.poolKey("pace"), "down", s.text()).Err())
		if j := r.job("n1"); j.instant != s.till || j.poolScope != (scopeSeen{s.text(), 10, second}) {
			t.Errorf("%+v, now %d", j, now)
		}
		if r.inspect().saidOfPool != s.text() || r.inspectPool().said != s.text() {
			t.Errorf("%+v, %+v", r.inspect(), r.inspectPool())
		}
		for _, want := range []string{s.text(), ""} {
			reply, ok := r.run(lua.Control, []string{r.poolKey("conf"), r.poolKey("pace")}, "tundish:wake", "pool:pool", "release", "anna").([]any)
			if !ok || len(reply) != 5 || reply[3] != want {
				t.Errorf("released: %v", reply)
			}
		}
		must.Equal(t, r.inspectPool().said, "", "the pool is still held")
	})
}

// An audit counts the flows that their downstream holds.
func TestSweepCountsFlowsInTrouble(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{capacity: 5000}, flowSettings{})
		const flows = 1200
		until := r.now() + 3600*second
		for i := range flows {
			name := fmt.Sprint("f", i)
			r.setState(name, flowState{unfinished: 1})
			switch i % 4 {
			case 0:
				r.say(name, words{till: until})
			case 1:
				r.say(name, words{till: until, breaker: 1})
			case 2:
				r.say(name, words{till: 1, rateCount: 1, ratePer: second}) // a hold that is over
			}
		}
		r.say("f3", words{till: until, breaker: 2})
		audit := func() (chunks int) {
			for cursor := "0"; chunks == 0 || cursor != "0"; chunks++ {
				cursor = r.find(sweep{none: true, flowCursor: cursor}).flowCursor
			}
			return chunks
		}
		if chunks := audit(); r.mini == nil && chunks == 1 {
			t.Error("the audit took one chunk")
		}
		b := r.inspect()
		if b.held < flows/4 || b.open < flows/4 || b.halfOpen < 1 || b.held > flows/4+9 || b.open > flows/4+9 || b.halfOpen > 2 {
			t.Errorf("held %d, open %d, half-open %d", b.held, b.open, b.halfOpen)
		}
		r.del("flows")
		audit()
		if b := r.inspect(); b.held+b.open+b.halfOpen != 0 {
			t.Errorf("without flows: held %d, open %d, half-open %d", b.held, b.open, b.halfOpen)
		}
	})
}
