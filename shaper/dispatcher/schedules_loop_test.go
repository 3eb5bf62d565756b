package dispatcher

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/producer"
)

// A dispatcher sleeps until a fire, and is in time. A reload brings, changes and removes schedules while it runs.
func TestSchedulesWhileADispatcherRuns(t *testing.T) {
	t.Parallel()
	b := rig.Bucket("b", 10)
	b.Schedules = []shaper.Schedule{{Name: "often", Cron: "@every 30s"}, {Name: "stays", Cron: "@every 1m"}}
	worker := shaper.WorkerFunc(func(context.Context, *shaper.Attempt) shaper.Outcome { return shaper.Done(200) })
	inBubble(t, worker, []shaper.Bucket{b}, func(l *loops) {
		began := time.Now()
		go func() {
			<-time.After(5*time.Minute + 5*time.Second)
			changed := b
			changed.Schedules = []shaper.Schedule{{Name: "stays", Cron: "@every 1m"}, {Name: "new", Cron: "@every 20s"}}
			if err := l.d.Reconfigure([]shaper.Bucket{changed}, rig.Workers([]shaper.Bucket{changed}, worker), nil); err != nil {
				t.Error(err)
			}
		}()
		l.run(10*time.Minute + 15*time.Second)
		known := store.HomeOf(l.d.store.Known("b"))
		for name, want := range map[string]int64{"stays": 10, "new": 15} {
			found, err := l.d.store.Schedules(l.t.Context(), known, name)
			if err != nil || len(found) != 1 {
				t.Fatal(found, err)
			}
			if got := found[0].Fired; got != want || found[0].Missed != 0 {
				t.Errorf("%s: %d fires, %d missed, want %d", name, got, found[0].Missed, want)
			}
			if len(found[0].Next) != 5 || !found[0].Next[0].After(began.Add(10*time.Minute)) {
				t.Errorf("%s: the next are %v", name, found[0].Next)
			}
			runs := must.Get(l.d.store.ScheduleRuns(l.t.Context(), known, name))(t)
			worst := time.Duration(0)
			for _, run := range runs {
				worst = max(worst, run.Lateness())
			}
			t.Logf("%s: %d fires, at most %s late", name, found[0].Fired, worst)
			if worst > time.Second {
				t.Errorf("%s: %s late, want at most 1s", name, worst)
			}
		}
		if found, err := l.d.store.Schedules(l.t.Context(), known, "often"); err != nil || len(found) != 0 {
			t.Errorf("left is %v, %v", found, err)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		t.Logf("in 10 minutes: %s", fmt.Sprint(l.scripts))
		if n := l.scripts["due_schedules"]; n > 200 {
			t.Errorf("the dispatcher looked %d times at the schedules, want at most 200", n)
		}
	})
}

// A process with an older file changes no schedules, and fires those that Redis holds.
func TestAnOlderFileFiresNothingOfItsOwn(t *testing.T) {
	t.Parallel()
	newer := rig.Bucket("b", 10)
	newer.Revision = 2
	newer.Schedules = []shaper.Schedule{{Name: "newer", Cron: "@every 10s"}}
	inBubble(t, shaper.WorkerFunc(func(context.Context, *shaper.Attempt) shaper.Outcome { return shaper.Done(200) }), []shaper.Bucket{newer}, func(l *loops) {
		must.OK(t, l.d.store.Configure(l.t.Context(), l.d.store.Known("b")))
		older := newer
		older.Revision = 1
		older.Schedules = []shaper.Schedule{{Name: "older", Cron: "@every 10s"}}
		d := must.Get(New(Config{Redis: l.redis, Buckets: []shaper.Bucket{older}, Workers: rig.Workers([]shaper.Bucket{older}, shaper.WorkerFunc(func(context.Context, *shaper.Attempt) shaper.Outcome { return shaper.Done(200) }))}))(t)
		l.d = d
		l.run(65 * time.Second)
		found, err := d.store.AllSchedules(l.t.Context())
		if err != nil || len(found) != 1 || found[0].Name != "newer" || found[0].Fired < 6 {
			t.Errorf("%+v, %v", found, err)
		}
	})
}

// A bucket that joins a pool takes its schedules along, with their pauses and what they have fired.
func TestSchedulesGoWithTheirBucket(t *testing.T) {
	t.Parallel()
	mini := redistest.Miniredis(t)
	conn := func() producer.Config { return producer.Config{Redis: redistest.ClientOf(t, mini)} }
	b := rig.Bucket("b", 10)
	b.Schedules = []shaper.Schedule{{Name: "s", Cron: "0 2 * * *"}, {Name: "other", Cron: "0 3 * * *"}}
	before := newFirers(t, 1, b, conn)
	before.fireDue(0)
	d := before.own[0]
	if _, _, err := d.store.ControlSchedule(t.Context(), store.HomeOf(d.Bucket), "s", "pause", "ann", "holidays"); err != nil {
		t.Fatal(err)
	}
	joined := rig.In(rig.PoolNamed("vendor"), b)
	cfg := conn()
	client := must.Get(rig.NewActors(producer.Config{Redis: cfg.Redis, Buckets: []shaper.Bucket{joined}}))(t)
	must.OK(t, client.JoinPools(t.Context()))
	found, err := client.Op.Schedules(t.Context())
	if err != nil || len(found) != 2 || found[1].Name != "s" || found[1].PausedBy != "ann" || found[0].Name != "other" || len(found[0].Next) != 5 {
		t.Errorf("%+v, %v", found, err)
	}
	must.Equal(t, cfg.Redis.Exists(t.Context(), d.Keys.Schedules(), d.Keys.ScheduleDue()).Val(), 0, "keys are left where the bucket was")
}
