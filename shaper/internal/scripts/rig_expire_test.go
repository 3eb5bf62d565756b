package scripts_test

import (
	"fmt"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// expireAgain is when expire.lua looks again at what it spares, microseconds.
const expireAgain = 5 * second

// expired is what expire.lua answers.
type expired struct {
	lookedAt int64
	sifted   []string // flows
	dead     []string // ids
}

// expireOnly runs expire.lua for jobs.
func (r *rig) expireOnly(ids ...string) (out expired) {
	r.t.Helper()
	flows, numbers := r.flowsOf(ids...)
	args := texts([]any{r.withFlows(), expireAgain, 1 << 20, expiredLast, len(flows)}, flows)
	for i, id := range ids {
		args = append(args, id, numbers[i])
	}
	in := lua.NewReader(r.run(lua.Expire, r.keysOf(lua.Expire, flows...), args...))
	must.Equal(r.t, in.Int(), r.now(), "the time is")
	out.lookedAt = in.Int()
	for range in.Int() {
		out.sifted = append(out.sifted, in.Text())
	}
	for in.Left() > 0 {
		must.Equal(r.t, in.Int(), 0, "dead for the reason")
		out.dead = append(out.dead, in.Text())
		in.Text() // its flow
		in.Int()
	}
	r.ok(in.Err())
	return out
}

// expire does what a dispatcher does: it looks at jobs whose time has come, until there are none. It returns the ids of the dead.
func (r *rig) expire() (dead []string) {
	r.t.Helper()
	for range 10_000 {
		ids, err := r.c.ZRangeByScore(r.ctx, r.key("expiries"), &redis.ZRangeBy{Min: "-inf", Max: fmt.Sprint(r.now()), Count: 100}).Result()
		if r.ok(err); len(ids) == 0 {
			return dead
		}
		out := r.expireOnly(ids...)
		if out.lookedAt == 0 {
			r.t.Fatalf("of %d jobs none was looked at", len(ids))
		}
		dead = append(dead, out.dead...)
		for _, flow := range out.sifted {
			r.sift(flow)
		}
	}
	r.t.Fatalf("there is no end of jobs that expire")
	return nil
}

// sift takes ids of jobs that ended out of the lists of a flow.
func (r *rig) sift(flow string) {
	r.t.Helper()
	for list := 1; list <= 4; list++ {
		for from, lookedAt := int64(0), int64(100); lookedAt == 100; {
			in := lua.NewReader(r.run(lua.Sift, r.keysOf(lua.Sift, flow), list, from, 100))
			lookedAt = in.Int()
			from += lookedAt - in.Int()
			r.ok(in.Err())
		}
	}
}

// expiries are the times that are kept of jobs that expire.
func (r *rig) expiries() map[string]int64 {
	r.t.Helper()
	all := r.scored("expiries")
	return scores(all)
}

// expireSome has expire.lua look at all jobs whose time has come: they are dead letters then, and no others are. Those that it spared
// are looked at later.
func (m *flowModel) expireSome(t *rapid.T) {
	dead := m.expire()
	for _, id := range dead {
		j := m.jobs[id]
		if !j.is(isQueued, isScheduled, isRetrying) || j.purging || j.expires == 0 || j.expires > m.clock() {
			t.Fatalf("%s expired: %+v", id, *j)
		}
		j.state, j.order, j.sched = isDead, 0, false
	}
	looksAt := m.expiries()
	for id, j := range m.jobs {
		at, there := looksAt[id]
		if j.is(isQueued, isScheduled, isRetrying, isInFlight) && j.expires > 0 && (!there || at <= m.now()) {
			t.Fatalf("%s is looked at %d, there %t, at %d: %+v", id, at, there, m.now(), *j)
		}
	}
}
