//go:build soak

package test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tundish-io/tundish/test/harness"
)

// TestReloadsUnmoved: twelve times in a row a bucket comes, changes, leaves with jobs in it and comes back, under three dispatchers and
// a producer. The two streams beside it are as they are without any reload: in no window of 5 s do they dip by more than 2 %, and in
// none do more arrive than the rate allows.
func TestReloadsUnmoved(t *testing.T) {
	const calm, rounds, window = 20 * time.Second, 12, 5 * time.Second
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) (fault string) {
		r := startReloading(t)
		began := time.Now()
		harness.Await(t, calm, "the streams run by themselves", func() bool { r.feed(); return time.Since(began) >= calm })
		quiet := time.Now()
		for range rounds {
			r.round()
		}
		ended := time.Now()
		for bucket, rate := range map[string]int{harness.BucketName: streamRate, mailBucket: mailRate} {
			times := r.to.Of(bucket)
			came := make(harness.Slots, len(times))
			for i, at := range times {
				came[i] = at.UnixMicro()
			}
			slices.Sort(came)
			given := r.given.Of(bucket)
			due := rate * int(window/time.Second)
			for _, part := range []struct {
				name     string
				from, to time.Time
			}{{"without reloads", began.Add(time.Second), quiet}, {fmt.Sprintf("%d reloads", r.applied-1), quiet, ended}} {
				slotsThen, cameThen := given.Within(part.from, part.to), came.Within(part.from, part.to)
				t.Logf("%s, %s: %.2f/s of %d/s; in %s, of %d: slots %d to %d, arrivals %d to %d; most arrivals in 1s %d, in 100ms %d", bucket, part.name,
					cameThen.Rate(), rate, window, due, slotsThen.Fewest(window), slotsThen.Most(window), cameThen.Fewest(window), cameThen.Most(window),
					cameThen.Most(time.Second), cameThen.Most(100*time.Millisecond))
				fault = cmp.Or(fault, stall.Dipped("slots", slotsThen, rate, window), stall.Dipped("arrivals", cameThen, rate, window),
					stall.Crowded(cameThen.Most, rate, harness.Steady, 100*time.Millisecond, time.Second, window))
			}
		}
		t.Logf("worst stall of the machine %s", stall.SoFar())
		r.wantPaced()
		r.wantOnce()
		return fault
	})
}
