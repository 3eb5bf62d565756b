package fleet_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/lua"
)

// A day of the history takes at most 16 KiB of each of 1,000 buckets. How long a heartbeat of 250 of them takes is printed.
func TestBoundsOfTheHistory(t *testing.T) {
	t.Parallel()
	const buckets, atOnce, bound = 1000, 250, 16 << 10
	conn := redistest.Start(t).Client()
	heartbeat := func(process string, number, period int64, from int) (current int64) {
		args := []any{process, number, 1, "{}", period}
		for i := from; i < from+atOnce; i++ {
			args = append(args, fmt.Sprintf("bucket-of-a-customer-%d", i), "123456 1234 123456 1234 359000000 1 2 3 4 5 6 7 8 9 10 11 12", fmt.Sprintf("%d %011d", i%64, i), 123456, 1234, 123456, 1234)
		}
		keys := []string{"tundish:{fleet}:heartbeats", "tundish:{fleet}:processes", "tundish:{fleet}:watched", "tundish:{fleet}:counts:" + process, fmt.Sprint("tundish:{fleet}:history:", period)}
		reply, err := lua.Heartbeat.Run(t.Context(), conn, nil, keys, args...)
		if err != nil {
			t.Fatal(err)
		}
		r := lua.NewReader(reply)
		_ = r.Int() // now
		return r.Int()
	}
	best := time.Hour
	period, number := int64(0), int64(0)
	for round := 0; round < 3; round++ {
		for from := 0; from < buckets; from += atOnce {
			number++
			began := time.Now()
			if current := heartbeat("p1", number, period, from); current != period { // another one has begun: from the first bucket again
				period, round = current, -1
				break
			}
			best = min(best, time.Since(began))
		}
	}
	used, err := conn.MemoryUsage(t.Context(), fmt.Sprint("tundish:{fleet}:history:", period), 0).Result()
	if err != nil {
		t.Fatal(err)
	}
	day := used * 288 / buckets
	t.Logf("a bucket takes %d bytes a day; a heartbeat of %d buckets took %s at its quickest", day, atOnce, best)
	if day > bound {
		t.Errorf("a day of a bucket takes %d bytes, want at most %d", day, bound)
	}
}
