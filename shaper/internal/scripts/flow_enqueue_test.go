package scripts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/stored"
	"github.com/tundish-io/tundish/lua"
)

// Codes of enqueue.lua that only buckets with flows have.
const flowFull, tooManyFlows = 10, 11

// state is what is kept of a flow; nothing of one that is not there.
func (r *rig) flowState(flow string) string {
	r.t.Helper()
	text, err := r.c.HGet(r.ctx, r.key("flows"), flow).Result()
	if err != nil && err != redis.Nil { //nolint:errorlint // it is never wrapped
		r.ok(err)
	}
	return text
}

// turnFrom is how far ahead of a time a flow's turn lies; -1 if it is not in the turn queue.
func (r *rig) turnFrom(flow string, now int64) int64 {
	r.t.Helper()
	at, err := r.c.ZScore(r.ctx, r.key("due:"), flow).Result()
	if err == redis.Nil { //nolint:errorlint // it is never wrapped
		return -1
	}
	r.ok(err)
	return int64(at) - now
}

func (r *rig) listAt(name string) string {
	r.t.Helper()
	ids := r.elements(name)
	return strings.Join(ids, " ")
}

func codes(answers []answer) string {
	var all []string
	for _, a := range answers {
		all = append(all, fmt.Sprintf("%d@%d", a.code, a.position))
	}
	return strings.Join(all, " ")
}

// Jobs wait in the list of their priority; before one wait all that are as important or more.
func TestEnqueueByPriority(t *testing.T) {
	const critical, high, normal, low = 1, 2, 3, 4
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 1})
		got := r.enqueue(nil, entry{id: "l", priority: low}, entry{id: "n"}, entry{id: "c", priority: critical},
			entry{id: "n2"}, entry{id: "h", priority: high}, entry{id: "l2", priority: low}, entry{id: "later", priority: high, due: "+5000000"})
		must.Equal(t, codes(got), "1@0 1@0 1@0 1@2 1@1 1@5 2@0", "answers")
		must.Equal(t, got[5].eta-got[0].eta, 5*second, "five jobs leave in")
		for priority, want := range map[int][2]int64{critical: {1, 1}, high: {2, 1}, normal: {4, 2}, low: {6, 2}} {
			keys, args := r.alike(nil, 2, priority, "")
			for i := range 2 {
				args = append(args, fmt.Sprintf("alike%d%d", priority, i), fmt.Sprintf("00000000000c%c%03d \n", "?chnl"[priority], i+1))
			}
			in := r.reader(lua.Enqueue, keys, args...)
			now, alike, position, eta, count, per := in.Int(), in.Int(), in.Int(), in.Int(), in.Int(), in.Int()
			if alike != 1 || position < want[0] || position > want[0]+6 || eta < now+(position-1)*second || count != 1 || per != second {
				t.Errorf("priority %d: alike %d, position %d, eta in %d, %d/%d", priority, alike, position, eta-now, count, per)
			}
		}
		for i, want := range []string{"c alike10 alike11", "h alike20 alike21", "n n2 alike30 alike31", "l l2 alike40 alike41"} {
			must.Equal(t, r.listAt(listKeys[i]), want, "%s holds", listKeys[i])
		}
		for _, key := range []string{"flows", "due:"} {
			if n, err := r.c.Exists(r.ctx, r.key(key)).Result(); n != 0 || err != nil {
				t.Errorf("a bucket without flows has %s: %v", key, err)
			}
		}
	})
}

// Dispatchers are woken where the bucket was empty, whatever the priority, and not else.
func TestEnqueueWakes(t *testing.T) {
	t.Parallel()
	r := realRig(t)
	heard := r.c.Subscribe(t.Context(), "tundish:wake")
	t.Cleanup(func() { _ = heard.Close() })
	must.Get(heard.Receive(t.Context()))(t)
	woken := func(does func()) bool {
		t.Helper()
		does()
		r.ok(r.c.Publish(r.ctx, "tundish:wake", "mark").Err())
		for n := 0; ; n++ {
			message := must.Get(heard.ReceiveMessage(t.Context()))(t)
			if message.Payload == "mark" {
				return n > 0
			}
		}
	}
	put := func(e entry) func() { return func() { r.enqueue(nil, e) } }
	r.configure(settings{})
	for i, step := range []struct {
		does func()
		want bool
	}{
		{put(entry{id: "a", priority: 4}), true},
		{put(entry{id: "b", priority: 4}), false},
		{put(entry{id: "c", priority: 1}), false},
		{put(entry{id: "d", due: "+5000000"}), true},
		{put(entry{id: "e", due: "+9000000"}), false},
		{put(entry{id: "f", due: "+4000000"}), true},
	} {
		must.Equal(t, woken(step.does), step.want, "step %d: woken", i)
	}
	r = r.fresh(t, "flows")
	r.configureFlows(settings{}, flowSettings{})
	for i, step := range []struct {
		does func()
		want bool
	}{
		{put(entry{id: "a", flow: "x", due: "+9000000"}), true},
		{put(entry{id: "b", flow: "y", due: "+9500000"}), false},
		{put(entry{id: "c", flow: "y"}), true},
		{put(entry{id: "d", flow: "z"}), false}, // its turn comes after y's
		{put(entry{id: "e", flow: "y"}), false},
	} {
		must.Equal(t, woken(step.does), step.want, "with flows, step %d: woken", i)
	}
}

// The bound of a flow is decided with all else: what does not fit spends nothing, and other
// flows have their room.
func TestFlowFull(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{rateCount: 10, capacity: 5}, flowSettings{capacity: 2, rateCount: 1})
		l := per(1, 60*second, 10)
		got := r.enqueue([]limit{l}, entry{id: "a1", flow: "a b"}, entry{id: "a2", flow: "a b"}, entry{id: "a3", flow: "a b"},
			entry{id: "b1", flow: ""}, entry{id: "a4", flow: "a b", due: "+5000000"}, entry{id: "b2", flow: ""}, entry{id: "b3", flow: ""})
		must.Be(t, codes(got), "1@0 1@1 10@2 1@0 2@0 1@1 10@2", "answers")
		full := got[2]
		if full.eta != 2 || full.wait < 100_000 || full.wait > second || full.limits[0] != [4]int64{0, 8, 0, full.limits[0][3]} {
			t.Errorf("flow full: %+v", full)
		}
		must.Equal(t, got[6].limits[0][1], 5, "tokens left of 10 after five jobs")
		if gap := got[1].eta - got[0].eta; gap < second-200_000 || gap > second {
			t.Errorf("two jobs of a flow of 1/s leave %d apart", gap)
		}
		if a, b := r.flowState("a b"), r.flowState(""); a != (stored.Flow{Unfinished: 2, Scheduled: 1, Filled: ".nd"}).String() || b != stored.Waiting(2).String() {
			t.Errorf("states %q and %q", a, b)
		}
		if a, b := r.listAt("q:normal:a b"), r.listAt("q:normal:"); a != "a1 a2" || b != "b1 b2" {
			t.Errorf("lists %q and %q", a, b)
		}
		if at, err := r.c.ZScore(r.ctx, r.key("later:a b"), "a4").Result(); err != nil || int64(at) < r.now() {
			t.Errorf("the delayed one is due at %.0f: %v", at, err)
		}
		// The bucket's bound is asked first, and a duplicate is none too many.
		got = r.enqueue([]limit{l}, entry{id: "c1", flow: "c"}, entry{id: "c2", flow: "c"}, entry{id: "a1", flow: "a b"})
		must.Equal(t, codes(got), "1@0 7@5 3@1", "answers")
		// Of a paused flow, nobody knows when.
		r.hset("flow_settings", "d", "- - - 1 - - 1\n{}")
		r.configureFlows(settings{rateCount: 10, capacity: 50}, flowSettings{capacity: 2})
		got = r.enqueue(nil, entry{id: "d1", flow: "d"}, entry{id: "d2", flow: "d"}, entry{id: "d3", flow: "d", due: "+5"})
		if codes(got) != "1@0 10@1 2@0" || got[0].eta != 0 || got[1].eta != 1 || got[1].wait != 0 || got[2].eta != 0 {
			t.Errorf("a paused flow with a capacity of its own: %+v", got)
		}
	})
}

// Jobs that are alike fit into their flow together, or are decided one by one.
func TestAlikeJobsOfAFlow(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{rateCount: 100}, flowSettings{capacity: 5, rateCount: 10, burst: 2})
		send := func(prefix string, n int) *lua.Reader {
			keys, args := r.alike(nil, n, 3, "x")
			for i := range n {
				args = append(args, fmt.Sprint(prefix, i), fmt.Sprintf("00000000000cn%03d \n", i+1))
			}
			return r.reader(lua.Enqueue, keys, args...)
		}
		in := send("a", 3)
		now, alike, position, eta, count, per := in.Int(), in.Int(), in.Int(), in.Int(), in.Int(), in.Int()
		if alike != 1 || position != 0 || eta < now || eta > now+10_000 || count != 10 || per != second {
			t.Errorf("alike %d, position %d, eta in %d, %d/%d", alike, position, eta-now, count, per)
		}
		in = send("b", 3)
		if in.Int(); in.Int() != 0 {
			t.Fatal("decided as one")
		}
		var got []int64
		for in.Left() > 0 {
			code, _, eta, _ := in.Int(), in.Int(), in.Int(), in.Int()
			got = append(got, code)
			if code == 1 && eta < now+200_000 { // the fourth: two at once, then one each 100 ms
				t.Errorf("eta in %d", eta-now)
			}
		}
		must.Equal(t, fmt.Sprint(got), "[1 1 10]", "codes %v", got)
		must.Equal(t, r.flowState("x"), stored.Waiting(5).String(), "state")
	})
}

// No new flow is let in where there are as many as may be; those that are there go on.
func TestTooManyFlows(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{}, flowSettings{maxFlows: 2})
		l := per(1, 60*second, 10)
		got := r.enqueue([]limit{l}, entry{id: "a", flow: "a"}, entry{id: "b", flow: "b", due: "+5000000"}, entry{id: "c", flow: "c"},
			entry{id: "c2", flow: "c", due: "+5000000"}, entry{id: "a2", flow: "a"})
		if codes(got) != "1@0 2@0 11@2 11@2 1@1" || got[2].eta != 2 || got[2].wait < 1 || got[2].limits[0][1] != 8 || got[4].limits[0][1] != 7 {
			t.Errorf("answers %+v", got)
		}
		if n, err := r.c.HLen(r.ctx, r.key("flows")).Result(); n != 2 || err != nil {
			t.Errorf("%d flows, %v", n, err)
		}
		r.pause()
		if got := r.enqueue(nil, entry{id: "d", flow: "d"})[0]; got.code != tooManyFlows || got.wait != 0 {
			t.Errorf("while paused: %+v", got)
		}
	})
}

// A flow is put in the turn queue when its list was empty, at the time at which its rate lets it go or its
// first delayed job is due, by the engine's clock; and never later than it is there already.
func TestEnqueueAndTheCalendar(t *testing.T) {
	const offset, slack = 7 * second, 2 * second // a test may take its time between two clocks
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{}, flowSettings{rateCount: 1, ratePer: 100 * second, burst: 2})
		r.hset("pace", "offset", int64(offset))
		now := r.now()
		rate := fmt.Sprint("1/", 100*second)
		for flow, slot := range map[string]int64{
			"fast": now - 1000*second, "slow": now + 100*second, "used": now, "stepped": now + 5000*second,
		} {
			last := min(slot, now) + offset // of the burst; but of a clock that was lost
			if flow == "stepped" {
				last = slot + offset
			}
			r.hset("flows", flow, fmt.Sprintf("%d 0 %s/%d 0 0 0 0 .", slot+offset, rate, last))
		}
		near := func(step, flow string, want int64) {
			t.Helper()
			if got := r.turnFrom(flow, now+offset); got < want || got > want+slack {
				t.Errorf("%s: the turn of %s is in %d, want %d", step, flow, got, want)
			}
		}
		r.enqueue(nil, entry{id: "n", flow: "new"}, entry{id: "f", flow: "fast"}, entry{id: "s", flow: "slow"},
			entry{id: "u", flow: "used"}, entry{id: "st", flow: "stepped"})
		near("list", "new", 0)
		near("list", "fast", 0)
		near("list", "slow", 100*second) // the second of its burst
		near("list", "used", 0)
		near("a clock that was lost", "stepped", 100*second)
		r.enqueue(nil, entry{id: "d", flow: "later", due: "+50000000"}, entry{id: "ds", flow: "slow", due: "+50000000"})
		near("delayed", "later", 50*second)
		near("delayed", "slow", 100*second)
		r.enqueue(nil, entry{id: "d2", flow: "later", due: "+90000000"})
		near("a later one", "later", 50*second)
		r.enqueue(nil, entry{id: "d3", flow: "later", due: "+20000000"}, entry{id: "d4", flow: "later", due: "+30000000"})
		near("earlier ones", "later", 20*second)
		r.enqueue(nil, entry{id: "d5", flow: "later", priority: 4}, entry{id: "d6", flow: "later", due: "+30000000"})
		near("one at once", "later", 0)

		// Who is away from it with jobs in his lists is held back, and not put on it again.
		r.zrem("due:", "fast")
		r.enqueue(nil, entry{id: "f2", flow: "fast"})
		must.Equal(t, r.turnFrom("fast", now), -1, "a flow that is held back has its turn in")
	})
}

// Who thinks that a bucket has no flows where it has, puts nothing where nobody looks.
func TestFlowsMustBeAgreedOn(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		for _, has := range []bool{false, true} {
			if has {
				r.configureFlows(settings{}, flowSettings{})
			}
			r.hasFlows = !has
			keys, args := r.enqueueArgs(nil, []entry{{id: "a"}})
			must.Equal(t, lua.NewReader(r.run(lua.Enqueue, keys, args...)).Int(), 3, "flows %t, and the caller thinks the opposite", has)
		}
	})
}
