package scripts_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// Letters of callers, and what is left of them.
const (
	loud, calm, third = "aaaaaaa", "aaaaaab", "aaaaaac"
)

// dieOf makes dead letters of a caller's jobs.
func (r *rig) dieOf(caller string, n, bytes int) {
	r.t.Helper()
	for i := range n {
		id := fmt.Sprintf("%s-%d-%d", caller, r.now(), i)
		if a := r.enqueue(nil, entry{id: id, caller: caller, content: strings.Repeat("x", bytes)})[0]; a.code != lua.Queued {
			r.t.Fatalf("%s: %+v", id, a)
		}
		r.pass(second)
		for _, job := range r.claim(ask{want: 1}).jobs {
			r.settle(outcome{lease: job, result: dead, last: `{"status":410}`})
		}
	}
}

// mayEnqueue reports what a caller's next job is answered, and takes the job back if it gets in.
func (r *rig) mayEnqueue(caller string) int64 {
	r.t.Helper()
	code := r.enqueue(nil, entry{id: "asked-" + caller, caller: caller})[0].code
	if code == lua.Queued {
		r.cancel("asked-"+caller, "1")
		r.del("seen", "seen_window", "seen_minute")
	}
	return code
}

// wantDeadOf holds the counts of callers against the dead letters.
func (r *rig) wantDeadOf() {
	r.t.Helper()
	want, got := map[string]int64{}, map[string]int64{}
	ids := r.members("dead")
	for _, id := range ids {
		caller, _, _ := strings.Cut(id, "-")
		digits := map[string]string{loud: "000000", calm: "000001", third: "000002"}[caller]
		want["dead_of:"+digits]++
		for _, hash := range []string{"body", "meta", "attempts"} {
			want["dead_bytes_of:"+digits] += r.c.Do(r.ctx, "HSTRLEN", r.key(hash), id).Val().(int64)
		}
		want["dead_bytes_of:"+digits] += int64(len(id))
	}
	counts := r.hash("count")
	for name, text := range counts {
		if strings.HasPrefix(name, "dead_of:") || strings.HasPrefix(name, "dead_bytes_of:") {
			got[name], _ = strconv.ParseInt(text, 10, 64)
		}
	}
	must.Equal(r.t, fmt.Sprint(got), fmt.Sprint(want), "counted are %v, there are %v", got, want)
}

// A caller whose dead letters fill a bucket is refused, and keeps no other caller out: that one may have its share too.
func TestDeadLettersOfOneCallerKeepNobodyOut(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 10_000})
		r.boundDead(8, 0, 0, false)
		r.dieOf(loud, 8, 1)
		must.Equal(t, r.mayEnqueue(loud), lua.DeadFull, "the caller that fills the bucket gets")
		for _, other := range []string{calm, third, ""} {
			must.Equal(t, r.mayEnqueue(other), lua.Queued, "caller %q, which has no dead letters, gets", other)
		}
		r.dieOf(calm, 6, 1)
		if got := r.mayEnqueue(calm); got != lua.DeadFull { // 16 - 6 of its own - half of 8: it leaves 6, and has 6
			t.Errorf("a caller above its share gets %d", got)
		}
		must.Equal(t, r.mayEnqueue(third), lua.Queued, "a third caller gets")
		r.wantDeadOf()
		r.redrive(r.c.ZRange(r.ctx, r.key("dead"), 0, 6).Val()...) // of the loud one, all but one
		must.Equal(t, r.mayEnqueue(loud), lua.Queued, "below the bound the caller gets")
		r.wantDeadOf()
	})
}

// So it is with bytes, and with what was in the bucket when it became full: that is many times the bound.
func TestDeadBytesOfOneCallerKeepNobodyOut(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 10_000})
		r.dieOf(loud, 10, 500)
		r.boundDead(0, 1000, 0, false)
		must.Equal(t, r.mayEnqueue(loud), lua.DeadTooLarge, "the caller that fills the bucket gets")
		must.Equal(t, r.mayEnqueue(calm), lua.Queued, "another caller gets")
		r.boundDead(2, 0, 0, false)
		if a, b := r.mayEnqueue(loud), r.mayEnqueue(calm); a != lua.DeadFull || b != lua.Queued {
			t.Errorf("five times above the bound they get %d and %d", a, b)
		}
	})
}

// Whatever makes a dead letter or takes one away counts for its caller, and what a fault left is forgotten once there are none.
func TestDeadLettersCountForTheirCallers(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 10_000})
		r.dieOf(loud, 3, 1)
		r.dieOf(calm, 2, 10)
		r.dieOf("", 1, 1)
		r.enqueue(nil, entry{id: third + "-expired", caller: third, expires: 1})
		r.pass(second)
		r.claim(ask{})
		r.enqueue(nil, entry{id: third + "-poison", caller: third})
		for range lastChance + 1 {
			r.pass(second)
			r.claim(ask{})
			r.end(third + "-poison")
			r.sweep(sweep{})
		}
		must.Be(t, r.zcard("dead"), 8, "dead letters")
		r.wantDeadOf()
		r.cancel(r.c.ZRange(r.ctx, r.key("dead"), 0, 0).Val()[0], "5")
		r.wantDeadOf()
		r.boundDead(2, 0, 0, true)
		r.trim(100, 1<<20)
		r.wantDeadOf()
		r.boundDead(0, 0, 1, true)
		r.hset("count", "dead_of:000009", 7, "dead_bytes_of:000009", 70)
		r.pass(second)
		r.trim(100, 1<<20)
		r.sweep(sweep{none: true, cursor: "0"})
		r.wantDeadOf()
	})
}
