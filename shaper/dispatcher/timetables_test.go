package dispatcher

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/schedule"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// Jobs collect before a window and leave evenly inside it, window for window: the dispatcher renews the timetable. While the bucket is
// closed the dispatcher looks every 30 s, whatever waits.
func TestWindowForWindow(t *testing.T) {
	t.Parallel()
	for _, levels := range []int{codec.LevelsNone, codec.LevelsFlows} {
		t.Run(fmt.Sprint(levels), func(t *testing.T) {
			t.Parallel()
			b := rig.Bucket("b", 10)
			if levels != codec.LevelsNone {
				b = rig.Flowing("b", shaper.FlowKeyJob)
				b.Rate = rig.PerSecond(10)
			}
			b.Drain = &schedule.Drain{Cron: "*/2 * * * *", For: 20 * time.Second}
			var mu sync.Mutex
			var arrived []time.Time
			worker := shaper.WorkerFunc(func(context.Context, *shaper.Attempt) shaper.Outcome {
				mu.Lock()
				defer mu.Unlock()
				arrived = append(arrived, time.Now())
				return shaper.Done(200)
			})
			inBubble(t, worker, []shaper.Bucket{b}, func(l *loops) {
				l.rtt = time.Millisecond
				l.enqueue(shaper.Job{Bucket: "b", Flow: "f0", Payload: []byte("x"), Delay: 20 * time.Hour})
				<-time.After(time.Minute) // of the bubble: a window is open at its beginning
				began := time.Now().Truncate(2 * time.Minute)
				for n := range 500 {
					l.enqueue(shaper.Job{Bucket: "b", Flow: fmt.Sprint("f", n%7), Payload: []byte("x")})
				}
				l.run(50 * time.Minute)
				perWindow := map[time.Duration]int{}
				for _, at := range arrived {
					opened := at.Truncate(2 * time.Minute)
					perWindow[opened.Sub(began)]++
					if at.Sub(opened) >= 20*time.Second {
						l.t.Errorf("one arrived at %s, outside of a window", at)
					}
				}
				if want := map[time.Duration]int{2 * time.Minute: 200, 4 * time.Minute: 200, 6 * time.Minute: 100}; !maps.Equal(perWindow, want) {
					l.t.Errorf("in each window there arrived %v, want %v", perWindow, want)
				}
				l.t.Logf("levels %d: the first arrived %s after the opening", levels, arrived[0].Sub(began)-2*time.Minute)
				for i := range min(len(arrived), 199) {
					if gap := arrived[i+1].Sub(arrived[i]); gap < 95*time.Millisecond || gap > 105*time.Millisecond {
						l.t.Errorf("number %d came %s after the one before", i+1, gap)
					}
				}
				if renewed := l.scripts["renew_timetable"]; renewed < 1 || renewed > 2 { // 64 stretches are an hour
					l.t.Errorf("the timetable was renewed %d times in 50 minutes", renewed)
				}
				if most := 2*int(50*time.Minute/idleClaim) + 3*20*60; l.looks() > most {
					l.t.Errorf("the dispatcher looked %d times in 50 minutes, want at most %d", l.looks(), most)
				}
			})
		})
	}
}

// A bucket that has sent nothing yet sends when its first window opens, also where the window is shorter than an interval of its rate, and where a
// finish makes the intervals long.
func TestTheFirstWindowOfABucket(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]shaper.Bucket{"none": rig.Bucket("b", 1), "flows": rig.Flowing("b", shaper.FlowKeyJob), "groups": rig.Grouped("b", 1)} {
		for kind, drain := range map[string]schedule.Drain{
			"short": {Cron: "*/2 * * * *", For: 20 * time.Second}, "finish": {Cron: "2 * * * *", For: 11 * time.Minute, FinishBy: "10m"},
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				t.Parallel()
				b, drain := b, drain
				b.Rate, b.Drain = rig.Rate("100/h"), &drain
				var arrived []time.Time
				worker := shaper.WorkerFunc(func(context.Context, *shaper.Attempt) shaper.Outcome {
					arrived = append(arrived, time.Now()) // at most one in 36 s
					return shaper.Done(200)
				})
				inBubble(t, worker, []shaper.Bucket{b}, func(l *loops) {
					<-time.After(time.Minute)
					began := time.Now()
					for range 3 {
						l.enqueue(shaper.Job{Bucket: "b", Group: "g", Flow: "f", Payload: []byte("x")})
					}
					l.run(13 * time.Minute)
					if len(arrived) != 3 || arrived[0].Sub(began) > 61*time.Second {
						t.Errorf("of 3 jobs there arrived %d, at %s; the window opened at %s", len(arrived), arrived, began.Add(time.Minute))
					}
				})
			})
		}
	}
}

// A configuration with a lower revision writes no plan and no timetable of its own, and its dispatcher renews the one in force. A reload
// that takes the windows away opens the bucket.
func TestOlderPlanIsNotWritten(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	with := func(revision int64, drain *schedule.Drain) *Dispatcher {
		t.Helper()
		b := rig.Bucket("b", 10)
		b.Revision, b.Drain = revision, drain
		d := must.Get(New(Config{Timeout: rig.Patience, Redis: server.Client(), Buckets: []shaper.Bucket{b}, Workers: rig.Workers([]shaper.Bucket{b}, shaper.WorkerFunc(nil))}))(t)
		must.OK(t, d.store.Configure(t.Context(), d.store.Known("b")))
		return d
	}
	kept := func() (plan, timetable string) {
		t.Helper()
		values := must.Get(server.Client().HMGet(t.Context(), store.BucketKeys("b").Conf(), store.FieldPlan, store.FieldTimetable).Result())(t)
		return fmt.Sprint(values[0]), fmt.Sprint(values[1])
	}
	with(2, &schedule.Drain{Cron: "* * * * *", For: 30 * time.Second})
	plan, timetable := kept()
	older := with(1, &schedule.Drain{Manual: true})
	if p, tt := kept(); p != plan || tt != timetable || !strings.Contains(plan, "* * * * *") {
		t.Errorf("after an older configuration the plan is %s", p)
	}
	known := older.store.Known("b")
	now := time.Now().Add(20 * time.Minute) // of 32 minutes more than half are over
	must.OK(t, older.store.RenewTimetable(t.Context(), known, plan, timetable, now.UnixMicro()))
	_, renewed := kept()
	if renewed == timetable || !strings.HasPrefix(renewed, fmt.Sprint(now.Add(-time.Minute).Unix())) {
		t.Errorf("renewed from %.60s… to %.60s…", timetable, renewed)
	}
	if err := older.store.RenewTimetable(t.Context(), known, "{}", "", now.UnixMicro()); err != nil { // another plan is in force
		t.Fatal(err)
	}
	if _, tt := kept(); tt != renewed {
		t.Error("the timetable of another plan was written")
	}
	with(3, nil)
	if p, tt := kept(); p != "" || tt != "" {
		t.Errorf("without windows the plan is %q and the timetable %q", p, tt)
	}
}
