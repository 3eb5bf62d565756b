package dispatcher

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/schedule"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// Two dispatchers, of which one goes away in the middle, and both for ten minutes: each window is reported once, and each job that was sent
// is in one report. A closing costs a few script calls, and a bucket without a hook none.
func TestEachWindowIsReportedOnce(t *testing.T) {
	t.Parallel()
	nightly, reports, quiet := rig.Bucket("nightly", 10), rig.Bucket("reports", 10), rig.Bucket("quiet", 10)
	nightly.Drain = &schedule.Drain{Cron: "*/2 * * * *", For: 20 * time.Second}
	nightly.Events, quiet.Drain = []shaper.Event{shaper.EventWindowClosed}, nightly.Drain
	hooks := []Hook{{Events: nightly.Events, Bucket: "reports", URL: "https://a.example"}}
	var mu sync.Mutex
	sent, opened, reported := int64(0), map[time.Time]int{}, int64(0)
	var late, why []string
	worker := shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
		mu.Lock()
		defer mu.Unlock()
		var event hookPayload
		if a.Bucket == "reports" && json.Unmarshal(a.Payload, &event) == nil && event.Data.Window != nil {
			w := event.Data.Window
			opened[w.Opened]++
			reported += w.Sent
			if w.Closed.Sub(w.Opened) != 20*time.Second || event.Type != "window.closed" || event.Data.Bucket != "nightly" || event.Data.Flow != nil {
				late = append(late, string(a.Payload))
			}
			if w.Left > 0 {
				why = append(why, w.Why...)
			}
		} else if a.Bucket == "nightly" {
			sent++
		}
		return shaper.Done(200)
	})
	buckets := []shaper.Bucket{nightly, reports, quiet}
	inBubble(t, worker, buckets, func(l *loops) {
		l.rtt = time.Millisecond
		one := func() *Dispatcher {
			d := must.Get(New(Config{Redis: l.redis, Buckets: buckets, Workers: rig.Workers(buckets, worker), Hooks: hooks, Enqueue: l.client.Enqueue}))(l.t)
			return d
		}
		<-time.After(time.Minute)
		for range 500 {
			l.enqueue(shaper.Job{Bucket: "nightly", Payload: []byte("x")})
		}
		began := time.Now()
		l.d = one()
		other, crash := context.WithCancel(l.t.Context())
		second := one()
		go func() { _ = second.Run(other) }()
		time.AfterFunc(2*time.Minute+70*time.Second/7, crash) // within a window
		l.run(10 * time.Minute)
		crash()
		<-time.After(10 * time.Minute)
		l.d = one()
		l.run(5 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		for at := began.Truncate(2 * time.Minute).Add(2 * time.Minute); at.Before(time.Now().Add(-time.Minute)); at = at.Add(2 * time.Minute) {
			if n := opened[at.UTC()]; n != 1 {
				l.t.Errorf("the window of %s was reported %d times", at.Format(time.TimeOnly), n)
			}
		}
		if sent != 500 || reported != sent || len(late) > 0 {
			l.t.Errorf("%d jobs were sent, %d reported; %q", sent, reported, late)
		}
		if len(why) != 2 || why[0] != "rate" || why[1] != "rate" {
			l.t.Errorf("jobs were left twice, because of %q", why)
		}
		if n, most := l.scripts["close_window"], 4*len(opened); n > most {
			l.t.Errorf("%d calls report %d windows, want at most %d", n, len(opened), most)
		}
		if l.redis.HExists(l.t.Context(), store.BucketKeys("quiet").Count(), "window").Val() {
			l.t.Error("a bucket without a hook has a tally")
		}
	})
}

// A hook that goes takes the tally with it, and a tally that is changed by another dispatcher is left alone.
func TestATallyGoesWithItsHook(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := rig.Bucket("b", 10)
	b.Drain, b.Events = &schedule.Drain{Cron: "* * * * *", For: 30 * time.Second, Timezone: "Europe/Paris"}, []shaper.Event{shaper.EventWindowClosed}
	d := must.Get(New(Config{Timeout: rig.Patience, Redis: server.Client(), Buckets: []shaper.Bucket{b}, Workers: rig.Workers([]shaper.Bucket{b}, shaper.WorkerFunc(nil))}))(t)
	known := d.store.Known("b")
	must.OK(t, d.store.Configure(t.Context(), known))
	conf := server.Client().HMGet(t.Context(), known.Keys.Conf(), store.FieldPlan, store.FieldEvents).Val()
	plan, events := conf[0].(string), conf[1].(string)
	tally := func() string { return server.Client().HGet(t.Context(), known.Keys.Count(), "window").Val() }
	now := time.Now().UnixMicro()
	look := func(plan, events, seen string) {
		t.Helper()
		must.OK(t, d.store.CloseWindows(t.Context(), known, plan, events, seen, 0, now))
	}
	look(plan, "job.dead", "")
	must.Equal(t, tally(), "", "without a hook there is")
	look(plan, events, "")
	first := tally()
	look(plan, events, first)
	look(plan, events, "1 2 0 0 0") // as it was long before
	if first == "" || tally() != first {
		t.Errorf("the tally is %q, then %q", first, tally())
	}
	must.OK(t, server.Client().HSet(t.Context(), known.Keys.Conf(), store.FieldEvents, "job.dead").Err())
	look(plan, "job.dead", first)
	if n := server.Client().HLen(t.Context(), known.Keys.OutboxTexts()).Val(); tally() != "" || n > 0 {
		t.Errorf("without a hook there is %q, and %d events", tally(), n)
	}
}
