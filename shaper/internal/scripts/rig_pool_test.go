package scripts_test

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// member is what scripts are told of the bucket's pool.
func (r *rig) member() string {
	if r.pool == "" {
		return ""
	}
	return r.name
}

// poolSettings are those of a pool; a zero means the default.
type poolSettings struct {
	rateCount, ratePer, burst, inFlight, revision int64
	quotas                                        string
}

// configurePool writes the settings of the bucket's pool.
func (r *rig) configurePool(s poolSettings) {
	r.t.Helper()
	reply := must.Get(lua.Integers(r.run(lua.Configure, []string{r.poolKey("conf")}, 1, s.revision, "tundish:wake", "pool:"+r.pool, 1, "test", 0,
		"rate_count", max(s.rateCount, 1), "rate_per", max(s.ratePer, second), "burst", max(s.burst, 1),
		"max_in_flight", s.inFlight, "quotas", s.quotas)))(r.t)
	if reply[0] > 1 {
		r.t.Fatalf("configure a pool: %v", reply)
	}
}

// pooled is another bucket of a pool on the same server.
func (r *rig) pooled(t tb, pool, name string, weight int64, s settings) *rig {
	b := r.fresh(t, name)
	b.pool = pool
	b.configure(s)
	b.hset("settings", "weight", weight)
	return b
}

// kept is what the pool keeps of a bucket.
type kept struct {
	weight, inFlight, tag, busyUntil, rate, waits, held, denied, seen, credit int64
}

func (r *rig) kept() kept {
	r.t.Helper()
	text := must.Get(r.c.HGet(r.ctx, r.poolKey("buckets"), r.name).Result())(r.t)
	var k kept
	if _, err := fmt.Sscan(text, &k.weight, &k.inFlight, &k.tag, &k.busyUntil, &k.rate, &k.waits, &k.held, &k.denied, &k.seen, &k.credit); err != nil {
		r.t.Fatalf("of %s the pool keeps %q: %v", r.name, text, err)
	}
	return k
}

// fill enqueues so many jobs, a thousand at a time.
func (r *rig) putMany(n int) {
	r.t.Helper()
	for from := 0; from < n; from += 1000 {
		ids := make([]string, min(1000, n-from))
		for i := range ids {
			ids[i] = r.name + strconv.Itoa(from+i)
		}
		r.put(ids...)
	}
}

// woken are the buckets that were published while do ran, in order.
func (r *rig) woken(do func()) string {
	r.t.Helper()
	sub := r.c.Subscribe(r.ctx, "tundish:wake")
	defer sub.Close()
	if _, err := sub.Receive(r.ctx); err != nil {
		r.t.Fatalf("%v", err)
	}
	do()
	r.ok(r.c.Publish(r.ctx, "tundish:wake", "end").Err())
	var names []string
	for {
		message := must.Get(sub.ReceiveMessage(r.ctx))(r.t)
		if message.Payload == "end" {
			return strings.Join(names, " ")
		}
		names = append(names, message.Payload)
	}
}

// keep writes what the pool keeps of a bucket.
func (r *rig) keep(k kept) {
	r.t.Helper()
	r.ok(r.c.HSet(r.ctx, r.poolKey("buckets"), r.name, fmt.Sprint(k.weight, k.inFlight, k.tag, k.busyUntil, k.rate, k.waits, k.held, k.denied, k.seen, k.credit)).Err())
}
