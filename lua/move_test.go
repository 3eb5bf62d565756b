//go:build soak

package lua_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/lua"
)

// moved is what move.lua answers.
type moved struct {
	code, number            int64
	state, move, tag, since string
	by, atMost              string
}

func (m moved) String() string { return fmt.Sprint(m.code, " ", m.state) }

// step runs move.lua on the keys of the rig, in the name of a move.
func (r *rig) step(step, move, atMost string) moved {
	r.t.Helper()
	in := lua.NewReader(r.run(lua.Move, r.moveKeys(), step, move, "other", "anna", atMost, "tundish:wake", r.name))
	m := moved{code: in.Int(), number: in.Int(), state: in.Text(), move: in.Text(), tag: in.Text(), since: in.Text(), by: in.Text(), atMost: in.Text()}
	r.ok(in.Err())
	return m
}

func (r *rig) moveKeys() []string {
	return r.keys("move", "conf", "conf_moving", "body", "leases", "seen", "flows")
}

// The mark goes from state to state, each step may be sent twice, and another move's is not carried on.
func TestMoveSteps(t *testing.T) {
	t.Parallel()
	for name, c := range map[string][]string{ // step and move, and what is answered
		"leaves":                 {"freeze a", "0 frozen", "freeze a", "0 frozen", "freeze b", "0 frozen", "gone b", "4 frozen", "gone a", "0 gone", "gone a", "0 gone", "freeze a", "4 gone", "thaw a", "4 gone"},
		"stays":                  {"freeze a", "0 frozen", "thaw b", "4 frozen", "thaw a", "0 ", "thaw a", "0 ", "gone a", "4 ", "freeze b", "0 frozen"},
		"leaves and comes again": {"freeze a", "0 frozen", "gone a", "0 gone", "expect b", "0 clearing", "clear b", "0 coming"},
		"comes": {"expect a", "0 clearing", "expect a", "0 clearing", "ready a", "4 clearing", "open a", "4 clearing", "clear b", "4 clearing", "clear a", "0 coming",
			"clear a", "0 coming", "expect a", "0 coming", "ready b", "4 coming", "ready a", "0 ready", "ready a", "0 ready", "expect a", "0 ready", "clear a", "4 ready", "refuse a", "4 ready",
			"done a", "4 ready", "open b", "4 ready", "open a", "0 arrived", "open a", "0 arrived", "ready a", "0 arrived", "expect a", "4 arrived", "expect b", "4 arrived", "refuse a", "4 arrived",
			"freeze b", "4 arrived", "done b", "4 arrived", "done a", "0 ", "done a", "0 ", "ready a", "4 ", "clear a", "4 ", "open a", "0 "},
		"is refused":               {"expect a", "0 clearing", "clear a", "0 coming", "refuse a", "0 refused", "refuse a", "0 refused", "expect a", "4 refused", "clear a", "4 refused", "ready a", "4 refused", "expect b", "4 refused", "done a", "0 ", "expect b", "0 clearing"},
		"is refused first":         {"refuse a", "0 refused", "expect a", "4 refused", "expect b", "4 refused", "evict a", "0 evicted", "expect b", "0 clearing", "refuse a", "4 clearing"},
		"another comes":            {"expect a", "0 clearing", "clear a", "0 coming", "expect b", "4 coming", "refuse b", "4 coming", "evict b", "0 coming", "evict a", "0 evicted", "clear a", "4 evicted", "ready a", "4 evicted", "expect b", "0 clearing"},
		"is evicted":               {"expect a", "0 clearing", "clear a", "0 coming", "ready a", "0 ready", "refuse b", "4 ready", "expect b", "4 ready", "evict a", "0 evicted", "open a", "4 evicted", "refuse b", "0 refused", "expect a", "4 refused", "done b", "0 "},
		"has come":                 {"expect a", "0 clearing", "clear a", "0 coming", "ready a", "0 ready", "open a", "0 arrived", "evict a", "0 arrived", "refuse b", "4 arrived"},
		"lives there":              {"thaw a", "0 ", "expect a", "5 ", "refuse a", "5 "},
		"nothing comes where from": {"freeze a", "0 frozen", "expect b", "4 frozen", "refuse a", "4 frozen", "expect a", "4 frozen", "clear a", "4 frozen"},
		"no such step":             {"look a", "4 "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(t *testing.T, r *rig) {
				if strings.HasPrefix(c[0], "freeze") || strings.HasPrefix(c[0], "thaw") { // it lives here
					r.configure(settings{})
					r.pause()
				}
				for i := 0; i < len(c); i += 2 {
					step, move, _ := strings.Cut(c[i], " ")
					if got := r.step(step, move, ""); got.String() != c[i+1] {
						t.Fatalf("%d: %s: %s, want %s", i/2, c[i], got, c[i+1])
					}
				}
			})
		})
	}
}

// What a bucket has to be like to be frozen, and what the mark says then.
func TestFreeze(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, r *rig) {
		want := func(what string, got moved, code, number int64, state string) {
			t.Helper()
			if got.code != code || got.number != number || got.state != state {
				t.Errorf("%s: %+v", what, got)
			}
		}
		want("not configured", r.step("freeze", "a", ""), 1, 0, "")
		r.configure(settings{rateCount: 10_000})
		r.put("one", "two", "three")
		want("not paused", r.step("freeze", "a", ""), 2, 0, "")
		want("by itself, with jobs", r.step("freeze", "a", "5"), 5, 3, "")
		jobs := r.claim(ask{want: 2}).jobs
		r.pause()
		want("in flight", r.step("freeze", "a", ""), 3, 2, "")
		r.settle(outcome{lease: jobs[0], result: done})
		r.ok(r.c.ZAdd(r.ctx, r.key("leases"), redis.Z{Member: jobs[1].id, Score: float64(r.now() - 1)}).Err())
		before := r.now()
		got := r.step("freeze", "a", "")
		want("paused", got, 0, 0, "frozen")
		since, err := strconv.ParseInt(got.since, 10, 64)
		if err != nil || since < before || since > r.now() || got.move != "a" || got.tag != "other" || got.by != "anna" || got.atMost != "" {
			t.Errorf("the mark is %+v", got)
		}
		if names, err := r.c.Exists(r.ctx, r.key("conf")).Result(); err != nil || names != 0 {
			t.Errorf("its conf is there: %v", err)
		}
		if paused, err := r.c.HExists(r.ctx, r.key("conf_moving"), "paused").Result(); err != nil || !paused {
			t.Errorf("its conf is lost: %v", err)
		}
	})
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 10_000})
		r.put("one", "two")
		for _, job := range r.claim(ask{want: 2}).jobs {
			r.settle(outcome{lease: job, result: done})
		}
		if got := r.step("freeze", "a", "1"); got.code != 6 || got.number != 2 {
			t.Errorf("with too many ids: %+v", got)
		}
		if got := r.step("keep", "b", ""); got.code != 0 {
			t.Errorf("keep: %+v", got)
		}
		if got := r.step("freeze", "a", "2"); got.code != 7 || got.state != "" {
			t.Errorf("without jobs, where an operator wants it: %+v", got)
		}
		r.ok(r.c.HDel(r.ctx, r.key("conf"), "moved").Err())
		if got := r.step("freeze", "a", "2"); got.code != 0 || got.atMost != "2" {
			t.Errorf("without jobs: %+v", got)
		}
		if got := r.step("keep", "b", ""); got.code != 4 {
			t.Errorf("keep what is frozen: %+v", got)
		}
	})
}

// Where there is a mark, no settings are written, until the bucket has arrived.
func TestConfigureObeysTheMark(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, r *rig) {
		keys := r.keys("conf", "body", "dead", "move")
		for _, c := range []struct {
			state string
			code  int64
		}{{"frozen", 4}, {"gone", 4}, {"clearing", 4}, {"coming", 4}, {"ready", 4}, {"refused", 4}, {"arrived", 0}, {"", 0}} {
			r.ok(r.c.Del(r.ctx, r.key("conf"), r.key("move")).Err())
			if c.state != "" {
				r.ok(r.c.HSet(r.ctx, r.key("move"), "state", c.state).Err())
			}
			reply, err := lua.Integers(r.run(lua.Configure, keys, 1, 0, "", r.name, "rate_count", 1))
			if err != nil || reply[0] != c.code {
				t.Errorf("%s: %v, %v", c.state, reply, err)
			}
			if n := r.c.Exists(r.ctx, r.key("conf")).Val(); n != 1-c.code/4 {
				t.Errorf("%s: the conf is there: %d", c.state, n)
			}
		}
	})
}

// readAll reads a key in chunks, and writes it to another.
func (r *rig) copyKey(from, to string, atMost int) (chunks int) {
	r.t.Helper()
	cursor, offset := "0", 0
	for {
		in := lua.NewReader(r.run(lua.MoveRead, r.keys(from), cursor, atMost))
		kind, ttl := in.Text(), in.Int()
		_, next := in.Int(), in.Text()
		args := []any{"a", kind, offset, ttl}
		for in.Left() > 0 {
			args = append(args, in.Text())
		}
		r.ok(in.Err())
		for range 2 {
			if got := r.write(to, args...); got != 0 {
				r.t.Fatalf("write %s: %d", to, got)
			}
		}
		chunks, offset = chunks+1, offset+len(args)-4
		if cursor = next; cursor == "" {
			return chunks
		}
	}
}

func (r *rig) write(key string, args ...any) int64 {
	r.t.Helper()
	reply, err := lua.Integers(r.run(lua.MoveWrite, r.keys("move", key), args...))
	r.ok(err)
	return reply[0]
}

// Keys of all types are copied in chunks, each of which may be sent twice, exactly and with their expiry.
func TestMoveCopiesKeys(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, r *rig) {
		r.step("expect", "a", "")
		r.step("clear", "a", "")
		const n = 1000
		var pairs, list []any
		var scored []redis.Z
		for i := range n {
			pairs = append(pairs, fmt.Sprint("field\x00", i), strings.Repeat("x", i))
			list = append(list, fmt.Sprint("id", i%7)) // ids stand in a list more than once
			scored = append(scored, redis.Z{Member: fmt.Sprint("id", i), Score: float64(epoch + i)})
		}
		r.ok(r.c.HSet(r.ctx, r.key("hash"), pairs...).Err())
		r.ok(r.c.RPush(r.ctx, r.key("list"), list...).Err())
		r.ok(r.c.ZAdd(r.ctx, r.key("zset"), scored...).Err())
		r.ok(r.c.Set(r.ctx, r.key("string"), "text", 3600_000_000_000).Err())
		for _, key := range []string{"hash", "list", "zset", "string"} {
			chunks := r.copyKey(key, "copy_"+key, 90)
			if want := map[string]int{"list": 12, "zset": 12, "string": 1}[key]; want > 0 && chunks != want {
				t.Errorf("%s: %d chunks, want %d", key, chunks, want)
			}
		}
		if got := r.c.HGetAll(r.ctx, r.key("copy_hash")).Val(); fmt.Sprint(got) != fmt.Sprint(r.c.HGetAll(r.ctx, r.key("hash")).Val()) {
			t.Error("the hash differs")
		}
		if got := r.c.LRange(r.ctx, r.key("copy_list"), 0, -1).Val(); !slices.Equal(got, r.c.LRange(r.ctx, r.key("list"), 0, -1).Val()) {
			t.Errorf("the list differs: %d elements", len(got))
		}
		if got := r.c.ZRangeWithScores(r.ctx, r.key("copy_zset"), 0, -1).Val(); !slices.Equal(got, scored) {
			t.Error("the zset differs")
		}
		if got, ttl := r.c.Get(r.ctx, r.key("copy_string")).Val(), r.ttl(r.key("copy_string")); got != "text" || ttl <= 0 {
			t.Errorf("the string is %q, and expires after %s", got, ttl)
		}
		if ttl := r.ttl(r.key("copy_list")); ttl > 0 {
			t.Errorf("the list expires after %s", ttl)
		}
		for _, key := range []string{"hash", "list", "zset", "string", "none"} {
			in := lua.NewReader(r.run(lua.MoveRead, r.keys(key), "0", 0))
			kind, _, size, next := in.Text(), in.Int(), in.Int(), in.Text()
			if want := map[string]int64{"string": 1, "none": 0}; kind != key || next != "" || in.Left() != 0 || size != n && size != want[key] {
				t.Errorf("%s: %s of %d, next %q", key, kind, size, next)
			}
		}
	})
}

// A chunk of a list goes where it belongs: the rest of it if some is there, and not behind a gap.
func TestMoveWritesListsInOrder(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, r *rig) {
		r.step("expect", "a", "")
		r.step("clear", "a", "")
		for _, c := range []struct {
			offset int
			texts  []any
			code   int64
			want   string
		}{
			{1, []any{"b"}, 2, "[]"}, {0, []any{"a", "b"}, 0, "[a b]"}, {0, []any{"a", "b"}, 0, "[a b]"}, {0, []any{"a", "b", "c"}, 0, "[a b c]"},
			{4, []any{"e"}, 2, "[a b c]"}, {3, []any{"d"}, 0, "[a b c d]"}, {1, []any{"b"}, 0, "[a b c d]"}, {2, []any{"c", "d", "e"}, 0, "[a b c d e]"},
		} {
			if code := r.write("list", append([]any{"a", "list", c.offset, -1}, c.texts...)...); code != c.code {
				t.Errorf("%+v: %d", c, code)
			}
			if got := fmt.Sprint(r.c.LRange(r.ctx, r.key("list"), 0, -1).Val()); got != c.want {
				t.Errorf("%+v: the list is %s", c, got)
			}
		}
	})
}

// Who comes late writes and removes nothing.
func TestMoveIsFenced(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, r *rig) {
		drop := func(move, state string, keys ...string) string {
			return fmt.Sprint(r.run(lua.MoveDrop, r.keys(append([]string{"move"}, keys...)...), move, state))
		}
		r.ok(r.c.HSet(r.ctx, r.key("seen"), "old", "x").Err())
		if got := drop("a", "clearing", "seen"); got != "[1]" {
			t.Errorf("dropped without a mark: %s", got)
		}
		r.step("expect", "a", "")
		for _, c := range []struct{ move, state, want string }{{"b", "clearing", "[1]"}, {"a", "gone", "[1]"}, {"a", "clearing", "[0 1]"}, {"a", "clearing", "[0 0]"}} {
			if got := drop(c.move, c.state, "seen", "nothing"); got != c.want {
				t.Errorf("drop %+v: %s", c, got)
			}
		}
		if got := drop("a", "clearing"); got != "[0 0]" {
			t.Errorf("drop nothing: %s", got)
		}
		hash := func(move string) int64 { return r.write("hash", move, "hash", 0, -1, "f", "v") }
		if hash("a") != 1 {
			t.Error("written before it was cleared")
		}
		r.step("clear", "a", "")
		if hash("b") != 1 || hash("a") != 0 {
			t.Error("the move that is under way writes, and no other")
		}
		if got := drop("a", "clearing", "hash"); got != "[1]" {
			t.Errorf("cleared too late: %s", got)
		}
		r.step("ready", "a", "")
		if hash("a") != 1 {
			t.Error("written when it was ready")
		}
		r.step("open", "a", "")
		if hash("a") != 1 {
			t.Error("written after it was opened")
		}
	})
}

// A server that is full takes no copy, and lets a move be given up.
func TestMoveOutOfMemory(t *testing.T) {
	t.Parallel()
	r := realRig(t)
	r.configure(settings{})
	r.put(numbered(300)...)
	r.pause()
	r.fill()
	if got := r.step("freeze", "a", ""); got.state != "frozen" {
		t.Errorf("%+v", got)
	}
	other := r.fresh(t, r.name)
	other.pool = "vendor"
	if got := other.step("expect", "a", ""); got.state != "clearing" {
		t.Errorf("%+v", got)
	}
	other.step("clear", "a", "")
	for _, kind := range []string{"hash", "zset", "list", "string"} {
		if _, err := lua.MoveWrite.Run(r.ctx, r.c, nil, other.keys("move", kind), "a", kind, 0, -1, "1", "2"); !redis.HasErrorPrefix(err, "OOM") {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if got := other.step("refuse", "a", ""); got.state != "refused" {
		t.Errorf("%+v", got)
	}
	if got := r.step("thaw", "a", ""); got.code != 0 || got.state != "" {
		t.Errorf("%+v", got)
	}
	if got := other.step("done", "a", ""); got.code != 0 {
		t.Errorf("%+v", got)
	}
	if b := r.inspect(); b.configured != 1 || b.waiting != 300 {
		t.Errorf("%+v", b)
	}
}

// A bucket that is frozen, or gone, is not swept: what is taken back there would be left there.
func TestFrozenBucketIsNotSwept(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 10_000})
		r.put("one", "two")
		jobs := r.claim(ask{want: 2}).jobs
		r.pause()
		for _, job := range jobs {
			r.ok(r.c.ZAdd(r.ctx, r.key("leases"), redis.Z{Member: job.id, Score: float64(r.now() - 1)}).Err())
		}
		r.step("freeze", "a", "")
		if s := r.sweep(sweep{cursor: "0"}); s.takenBack != 0 || s.repaired != 0 {
			t.Errorf("swept %+v", s)
		}
		r.step("thaw", "a", "")
		if s := r.sweep(sweep{cursor: "0"}); s.takenBack != 2 {
			t.Errorf("swept %+v", s)
		}
	})
}
