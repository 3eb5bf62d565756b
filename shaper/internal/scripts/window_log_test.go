package scripts_test

import (
	"fmt"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// What a large log holds that does not count any more goes with the next write, whatever is behind it.
func TestLogForgets(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		const stale = 10_000
		l := algorithms[1].window(100_000, second)
		l.key = "l"
		for _, live := range []int{0, 1, 7, stale} {
			r.del("limit:l")
			entries := make([]any, stale+live)
			for i := range int64(stale + live) {
				at := epoch + i
				if i >= stale {
					at += 5 * second
				}
				entries[i] = fmt.Sprintf("%d:%d:%d:%d", at, i, i+1, int64(second))
			}
			r.rpush("limit:l", entries...)
			if got := r.allow(l, 1, epoch+5*second+2*stale); got.verdict != allowed || got.remaining != l.full-int64(live)-1 {
				t.Fatalf("with %d that count: %+v", live, got)
			}
			must.Be(t, must.Get(r.c.LLen(r.ctx, r.key("limit:l")).Result())(t), int64(live)+1, "entries, of which %d count", live+1)
		}
	})
}

// The log's memory is bounded by the limit, whatever the traffic is.
func TestLogIsBounded(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		l := algorithms[1].window(10, second)
		l.key = "l"
		for i := range atLength(2000, 8) {
			r.allow(l, 1, epoch+i*i%7*1000+i*2000)
			if n, err := r.c.LLen(r.ctx, r.key("limit:l")).Result(); err != nil || n > l.full {
				t.Fatalf("%d entries, %v", n, err)
			}
		}
	})
}
