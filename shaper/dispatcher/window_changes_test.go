package dispatcher

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/schedule"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// A reload changes the hours of a bucket, while the bucket is open or closed. Each window of the new hours is reported once, an open window
// that is removed closes at the reload, and no window is reported that never was. So it is where Redis has the tally of earlier hours.
func TestWindowsAfterAChangeOfHours(t *testing.T) {
	t.Parallel()
	every := func(cron string, length time.Duration) *schedule.Drain {
		return &schedule.Drain{Cron: cron, For: length}
	}
	const hourly, minutely = "0 * * * *", "*/2 * * * *"
	long, short := every(hourly, 30*time.Minute), every(minutely, 50*time.Second)
	finish := &schedule.Drain{Cron: hourly, FinishBy: "30m"}
	for _, c := range []struct {
		name     string
		from, to *schedule.Drain
		tally    [2]time.Duration // in Redis: opening and end, after midnight
		start    time.Duration    // of the dispatcher, after midnight
		change   time.Duration    // after midnight; 0 the dispatcher starts with the new hours
		stop     time.Duration    // after midnight
		want     []string
	}{
		{name: "long to short, closed", from: long, to: short, start: 40 * time.Minute, change: 41 * time.Minute, stop: 46 * time.Minute,
			want: []string{"00:42 00:42", "00:44 00:44"}},
		{name: "finish to short, closed", from: finish, to: short, start: 40 * time.Minute, change: 41 * time.Minute, stop: 46 * time.Minute,
			want: []string{"00:42 00:42", "00:44 00:44"}},
		{name: "long to short, open", from: long, to: short, start: 10 * time.Minute, change: 11 * time.Minute, stop: 16 * time.Minute,
			want: []string{"00:00 00:11", "00:12 00:12", "00:14 00:14"}},
		{name: "short to long, closed", from: short, to: long, start: 55 * time.Minute, change: 59 * time.Minute, stop: 91 * time.Minute,
			want: []string{"00:56 00:56", "00:58 00:58", "01:00 01:30"}},
		{name: "short to long, open", from: short, to: long, start: 55 * time.Minute, change: 56*time.Minute + 20*time.Second, stop: 91 * time.Minute,
			want: []string{"00:56 00:56", "01:00 01:30"}},
		{name: "short to long that is open", from: short, to: long, start: 5 * time.Minute, change: 7 * time.Minute, stop: 31 * time.Minute,
			want: []string{"00:06 00:06", "00:00 00:30"}},
		{name: "removed, open", from: long, start: 10 * time.Minute, change: 11 * time.Minute, stop: 15 * time.Minute, want: []string{"00:00 00:11"}},
		{name: "removed, closed", from: long, start: 40 * time.Minute, change: 41 * time.Minute, stop: 65 * time.Minute},
		{name: "shorter, closed", from: long, to: every(hourly, 20*time.Minute), start: 40 * time.Minute, change: 41 * time.Minute, stop: 81 * time.Minute,
			want: []string{"01:00 01:20"}},
		{name: "longer, closed", from: long, to: every(hourly, 40*time.Minute), start: 45 * time.Minute, change: 46 * time.Minute, stop: 101 * time.Minute,
			want: []string{"01:00 01:40"}},
		{name: "longer, so that it opens again", from: long, to: every(hourly, 50*time.Minute), start: 40 * time.Minute, change: 41 * time.Minute,
			stop: 51 * time.Minute, want: []string{"00:00 00:50"}},
		{name: "shorter, and the end has passed", from: long, to: every(hourly, 5*time.Minute), start: 10 * time.Minute, change: 11 * time.Minute,
			stop: 14 * time.Minute, want: []string{"00:00 00:11"}},
		{name: "a tally of earlier hours", to: short, tally: [2]time.Duration{60 * time.Minute, 90 * time.Minute}, start: 41 * time.Minute, stop: 46 * time.Minute,
			want: []string{"00:42 00:42", "00:44 00:44"}},
		{name: "a tally that has ended", tally: [2]time.Duration{0, 30 * time.Minute}, start: 41 * time.Minute, stop: 43 * time.Minute, want: []string{"00:00 00:30"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			nightly, reports := rig.Bucket("nightly", 10), rig.Bucket("reports", 10)
			nightly.Events = []shaper.Event{shaper.EventWindowClosed}
			nightly.Drain = c.from
			if c.change == 0 {
				nightly.Drain = c.to
			}
			var mu sync.Mutex
			var got []string
			worker := shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
				mu.Lock()
				defer mu.Unlock()
				var event hookPayload
				if json.Unmarshal(a.Payload, &event) == nil && event.Data.Window != nil {
					w := event.Data.Window
					got = append(got, w.Opened.UTC().Format("15:04 ")+w.Closed.UTC().Format("15:04"))
				}
				return shaper.Done(200)
			})
			inBubble(t, worker, []shaper.Bucket{nightly, reports}, func(l *loops) {
				midnight := time.Now().UTC().Truncate(24 * time.Hour)
				hooks := []Hook{{Events: nightly.Events, Bucket: "reports", URL: "https://a.example"}}
				before := []shaper.Bucket{nightly, reports}
				var err error
				if l.d, err = New(Config{Redis: l.redis, Buckets: before, Workers: rig.Workers(before, worker), Hooks: hooks, Enqueue: l.client.Enqueue}); err != nil {
					l.t.Fatal(err)
				}
				count := store.BucketKeys("nightly").Count()
				if c.tally[1] > 0 {
					l.redis.HSet(l.t.Context(), count, "window", fmt.Sprintf("%d %d 0 0 0", midnight.Add(c.tally[0]).UnixMicro(), midnight.Add(c.tally[1]).UnixMicro()))
				}
				<-time.After(time.Until(midnight.Add(c.start)))
				if c.change > 0 {
					time.AfterFunc(c.change-c.start, func() {
						other := nightly
						other.Drain = c.to
						after := []shaper.Bucket{other, reports}
						if err := l.d.Reconfigure(after, rig.Workers(after, worker), hooks); err != nil {
							l.t.Error(err)
						}
					})
				}
				l.run(c.stop - c.start)
				mu.Lock()
				defer mu.Unlock()
				if !slices.Equal(got, c.want) {
					l.t.Errorf("reported %q, want %q", got, c.want)
				}
				must.Equal(l.t, l.redis.HExists(l.t.Context(), count, "window").Val(), (c.to != nil), "at the end there is a tally")
			})
		})
	}
}
