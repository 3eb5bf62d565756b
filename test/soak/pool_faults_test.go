//go:build soak

package soak

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/faultproxy"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// bothBuckets share the pool of pooled.
var bothBuckets = []string{harness.BucketName, secondBucket}

// postBoth enqueues so many jobs into each bucket.
func (s *system) postBoth(each int) {
	s.T.Helper()
	for _, bucket := range bothBuckets {
		s.postInto(bucket, each)
	}
}

// longestGap is the longest time without an arrival between two instants, of which the arrivals
// lie in order.
func longestGap(times []time.Time, from, to time.Time) (longest time.Duration) {
	for _, at := range append(between(times, from, to), to) {
		longest, from = max(longest, at.Sub(from)), at
	}
	return longest
}

// TestPoolWhenADispatcherDies: kill -9 of one of two dispatchers loses no job of either bucket,
// doubles only what was in flight, makes no burst in the pool, and both buckets go on.
func TestPoolWhenADispatcherDies(t *testing.T) {
	const rate, each, lease = 200, 400, 2 * time.Second
	const standstill = time.Second // slots that the dead one had claimed, and what it had reserved
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		a := &harness.ArrivalLog{}
		s := start(t, redistest.Start(t), harness.Plan{
			Rate: rate, Dispatchers: 2, Lease: lease,
			// The first bucket has its own, which no lease may be shorter than.
			Bucket: strings.Replace(pooled(rate, 1, 1), "[buckets.webhook]\n", "[buckets.webhook]\ntimeout = \"1800ms\"\n", 1),
			Respond: func(w http.ResponseWriter, r *http.Request, id string, attempt int) {
				a.Respond(w, r, id, attempt)
				select {
				case <-time.After(200 * time.Millisecond):
				case <-r.Context().Done():
				}
			},
		})
		s.postBoth(each)
		harness.Await(t, 20*time.Second, "a third of the jobs have arrived", func() bool { return s.History.Check().Delivered >= 2*each/3 })
		s.Dispatchers[0].Kill()
		killed, inFlight := time.Now(), map[string]bool{}
		for _, bucket := range bothBuckets {
			leases, err := s.Inspector.ZRange(t.Context(), "tundish:{vendor}:b:"+bucket+":leases", 0, -1).Result()
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range leases {
				inFlight[id] = true
			}
		}
		r := s.AwaitDelivered(30 * time.Second)
		harness.Report(t, rate, r)
		gap := time.Duration(0)
		for _, bucket := range bothBuckets {
			gap = max(gap, longestGap(a.Sorted(bucket), killed, killed.Add(lease)))
		}
		t.Logf("%d jobs were in flight at the kill, %d came twice; the longest that a bucket stood still in the %s after it is %s; ahead of the pool's rate by at most %s",
			len(inFlight), len(r.Duplicated), lease, gap.Round(time.Millisecond), harness.Ahead(a.All(), rate))
		if err := r.Err(); err != nil {
			t.Fatal(err)
		}
		for id, extra := range r.Duplicated {
			if !inFlight[id] || extra > 1 {
				return fmt.Sprintf("job %s came %d times more; in flight at the kill: %v", id, extra, inFlight[id])
			}
		}
		if most := standstill + stall.Cost(); gap > most {
			return fmt.Sprintf("a bucket stood still for %s, want at most %s", gap, most)
		}
		return cmp.Or(a.Early(stall, rate, harness.Spread), stall.Crowded(r.MostIn, rate, harness.Steady, time.Second))
	})
}

// TestPoolBounds: over both buckets no more are at the receiver than the pool allows, and no more
// in any of its windows, and what both bounds allow is reached.
func TestPoolBounds(t *testing.T) {
	const rate, each = 1000, 120
	const bound, quota, window, hold = 12, 60, time.Second, 150 * time.Millisecond // 80/s until the quota is used up
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		a, b := &harness.ArrivalLog{}, &busy{hold: hold}
		s := start(t, redistest.Start(t), harness.Plan{
			Rate: rate, Dispatchers: 2,
			Bucket: pooled(rate, 1, 1, fmt.Sprintf(`quotas = ["%d/s"]`, quota), fmt.Sprintf("max_in_flight = %d", bound)),
			Respond: func(w http.ResponseWriter, r *http.Request, id string, attempt int) {
				a.Respond(w, r, id, attempt)
				b.respond(w, r, id, attempt)
			},
		})
		s.postBoth(each)
		r := s.AwaitDelivered(30 * time.Second)
		took := slices.MaxFunc(a.All(), time.Time.Compare).Sub(a.All()[0])
		tight := window - harness.Steady - stall.SoFar() // what left so far apart may arrive so close together
		in := harness.MostOf(a.All(), tight)
		t.Logf("%s in %s; at most %d at a time of %d, most in %s %d of %d", r, took.Round(time.Millisecond), b.highest(), bound, tight, in, quota)
		if fault := once(t, r); fault != "" {
			return fault
		}
		if b.highest() > bound {
			t.Fatalf("%d at a time, want at most %d", b.highest(), bound)
		}
		const windows = 2*each/quota - 1 // that have to end before the last jobs may leave
		last := time.Duration(quota) * hold / bound
		switch {
		case in > quota:
			return fmt.Sprintf("%d in %s, want at most %d in %s", in, tight, quota, window)
		case b.highest() < bound:
			return fmt.Sprintf("%d at a time, and %d are allowed", b.highest(), bound)
		case took > windows*window+last+2*windows*(b.each()-hold)+window/4+stall.Cost():
			return fmt.Sprintf("it took %s, want %s: what the bounds allow is not used", took, windows*window+last)
		}
		return ""
	})
}

// TestPoolSlowNetwork: a far Redis costs no slots of a pool.
func TestPoolSlowNetwork(t *testing.T) {
	const rate, each = 400, 500
	for _, delay := range []time.Duration{10 * time.Millisecond, 50 * time.Millisecond} {
		t.Run(delay.String(), func(t *testing.T) {
			harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
				server := redistest.Start(t)
				proxy, err := faultproxy.New(server.Addr())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = proxy.Close() })
				proxy.SetDelay(delay)
				a := &harness.ArrivalLog{}
				s := start(t, server, harness.Plan{Rate: rate, Dispatchers: 2, Respond: a.Respond, Bucket: pooled(rate, 1, 1), RedisURL: "redis://" + proxy.Addr()})
				s.postBoth(each)
				r := s.AwaitDelivered(30 * time.Second)
				harness.Report(t, rate, r)
				t.Logf("ahead of the pool's rate by at most %s", harness.Ahead(a.All(), rate))
				return cmp.Or(once(t, r), a.Early(stall, rate, harness.Steady), stall.Slow(r.Rate, rate, 2*each, .98))
			})
		})
	}
}

// TestPoolOnACluster: all that is of a pool is at one node, and buckets share it there as anywhere.
func TestPoolOnACluster(t *testing.T) {
	const rate, each = 200, 250
	const first, second = 3, 1
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		c := redistest.StartCluster(t)
		a := &harness.ArrivalLog{}
		s := start(t, c.Nodes[0], harness.Plan{Rate: rate, Dispatchers: 2, Respond: a.Respond, Bucket: pooled(rate, first, second), RedisURL: c.URL()})
		s.postBoth(each)
		posted := time.Now()
		r := s.AwaitDelivered(30 * time.Second)
		harness.Report(t, rate, r)
		dry := a.Latest(harness.BucketName)
		of := func(bucket string) float64 {
			return float64(len(between(a.Sorted(bucket), posted.Add(settling), dry.Add(-settling))))
		}
		share := of(harness.BucketName) / max(of(harness.BucketName)+of(secondBucket), 1)
		t.Logf("while both had work the first had %.1f %%; ahead of the pool's rate by at most %s", 100*share, harness.Ahead(a.All(), rate))
		if fault := once(t, r); fault != "" {
			return fault
		}
		if due := float64(first) / (first + second); share < due-.06 || share > due+.06 {
			return fmt.Sprintf("the first had %.1f %%, want %.0f %% ± 6", 100*share, 100*due)
		}
		return cmp.Or(a.Early(stall, rate, harness.Steady), stall.Slow(r.Rate, rate, 2*each, .98))
	})
}
