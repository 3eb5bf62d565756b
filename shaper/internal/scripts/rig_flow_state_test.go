package scripts_test

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/stored"
	"github.com/tundish-io/tundish/lua"
)

// placed is a job that is somewhere.
type placed struct {
	id, flow  string
	priority  int   // 0 means normal
	scheduled bool  // it came with a delay
	state     int   // 0 means queued
	in        int64 // due, or end of the lease: microseconds from now on
	crashes   int
}

func (p placed) mark() string {
	kind := "c"
	if p.scheduled {
		kind = "C"
	}
	return "00000000000" + kind + string("nkhnl"[p.priority])
}

func (p placed) list() string {
	return "q:" + []string{"normal", "critical", "high", "normal", "low"}[p.priority] + ":" + p.flow
}

// lease is that of a job that was placed in flight.
func (p placed) lease() lease { return lease{id: p.id, epoch: 1, claim: "c", mark: p.mark()} }

// place writes jobs as enqueue and claim would have: bodies, places, counters. The
// calendar is for the test to write.
func (r *rig) place(jobs ...placed) {
	r.t.Helper()
	for _, p := range jobs {
		if p.state == 0 {
			p.state = isQueued
		}
		now := r.now()
		seq := must.Get(r.c.HIncrBy(r.ctx, r.key("count"), "seq", 1).Result())(r.t)
		header := must.Get(json.Marshal(struct {
			Flow string `json:"f,omitempty"`
			URL  string `json:"u"`
		}{p.flow, "https://example.com/"}))(r.t)
		pipe := r.c.Pipeline()
		pipe.HSet(r.ctx, r.key("body"), p.id, fmt.Sprintf("%d %d %s001 %s\npayload {\"f\":\"no\"}", seq-1, now, p.mark(), header))
		if p.state >= isInFlight {
			pipe.HSet(r.ctx, r.key("meta"), p.id, fmt.Sprintf("%d 1 0 0 %d c ", p.state, p.crashes))
		}
		at := redis.Z{Member: p.id, Score: float64(now + p.in)}
		switch p.state {
		case isQueued:
			pipe.RPush(r.ctx, r.key(p.list()), p.id)
		case isInFlight:
			pipe.ZAdd(r.ctx, r.key("leases"), at)
		case isDead:
			pipe.ZAdd(r.ctx, r.key("dead"), at)
		default:
			pipe.ZAdd(r.ctx, r.key("later:"+p.flow), at)
		}
		f := r.flow(p.flow)
		if p.state != isDead && p.scheduled {
			f.scheduled++
			pipe.HIncrBy(r.ctx, r.key("count"), "scheduled", 1)
		} else if p.state != isDead {
			f.unfinished++
		}
		if p.state == isInFlight {
			f.inFlight++
		}
		if r.withFlows() == 1 && p.state != isDead {
			pipe.HSet(r.ctx, r.key("flows"), p.flow, f.text())
		}
		must.Get(pipe.Exec(r.ctx))(r.t)
	}
}

// flowState is what is kept of a flow.
type flowState struct {
	slot, frac                            int64
	rate                                  string
	turn, unfinished, scheduled, inFlight int64
	filled                                string // "" means that nothing is known of its places
}

func (f flowState) text() string {
	return stored.Flow{Slot: f.slot, Frac: f.frac, Rate: f.rate, Turn: f.turn, Unfinished: f.unfinished, Scheduled: f.scheduled, InFlight: f.inFlight, Filled: f.filled}.String()
}

// counts are its counters: unfinished, scheduled, in flight; "" if nothing is kept.
func (r *rig) counts(flow string) string {
	r.t.Helper()
	if kept, err := r.c.HExists(r.ctx, r.key("flows"), flow).Result(); err != nil || !kept {
		r.ok(err)
		return ""
	}
	f := r.flow(flow)
	return fmt.Sprint(f.unfinished, f.scheduled, f.inFlight)
}

func (r *rig) flow(name string) flowState {
	r.t.Helper()
	texts := must.Get(r.c.HMGet(r.ctx, r.key("flows"), name).Result())(r.t)
	var f flowState
	if text, ok := texts[0].(string); ok {
		if _, err := fmt.Sscan(text, &f.slot, &f.frac, &f.rate, &f.turn, &f.unfinished, &f.scheduled, &f.inFlight, &f.filled); err != nil {
			r.t.Fatalf("flow %q is %q: %v", name, text, err)
		}
		return f
	}
	return flowState{rate: "-"}
}

// setState writes the state of a flow.
func (r *rig) setState(name string, f flowState) {
	r.t.Helper()
	f.rate = "-"
	r.hset("flows", name, f.text())
}

// turn is that of a flow in calendar time, 0 if it is not in the turn queue.
func (r *rig) turn(flow string) int64 {
	r.t.Helper()
	turns := r.scored(r.due(flow))
	for _, z := range turns {
		if z.Member == flow {
			return int64(z.Score)
		}
	}
	return 0
}

func (r *rig) setTurn(flow string, at int64) {
	r.t.Helper()
	r.zadd("due:", flow, at)
}

// own gives a flow settings: those of the first line of their text.
func (r *rig) own(flow, text string) {
	r.t.Helper()
	r.hset("flow_settings", flow, text+"\n-")
}

// list is what is in a list, by priority and flow.
func (r *rig) list(priority, flow string) string {
	r.t.Helper()
	ids := r.elements("q:" + priority + ":" + flow)
	return strings.Join(ids, " ")
}

// laterOf is what is in the later of a flow.
func (r *rig) laterOf(flow string) string {
	r.t.Helper()
	ids := r.members("later:" + flow)
	return strings.Join(ids, " ")
}

// wakes reports whether do wakes dispatchers.
func (r *rig) wakes(do func()) bool {
	r.t.Helper()
	sub := r.c.Subscribe(r.ctx, "tundish:wake")
	defer func() { _ = sub.Close() }()
	if _, err := sub.Receive(r.ctx); err != nil {
		r.t.Fatalf("subscribe: %v", err)
	}
	do()
	r.ok(r.c.Publish(r.ctx, "tundish:wake", "end of the test").Err()) // comes behind those of do
	message := must.Get(sub.ReceiveMessage(r.ctx))(r.t)
	return message.Payload == r.name
}

// controlFlow runs control_flow.lua and returns the settings before and after.
func (r *rig) controlFlow(flow, action string, args ...any) (before, after string) {
	r.t.Helper()
	in := r.reader(lua.ControlFlow, r.keysOf(lua.ControlFlow, flow),
		append([]any{"tundish:wake", r.name, flow, action, max(r.withFlows(), 1)}, args...)...)
	if _, has := in.Int(), in.Int(); has == 0 {
		r.t.Fatalf("the bucket has no flows")
	}
	before, after = in.Text(), in.Text()
	r.ok(in.Err())
	return before, after
}
