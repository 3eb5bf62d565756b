package dispatcher

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/schedule"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
)

// The clock of Redis steps over a fire time, both ways: it fires once.
func TestAStepOverAFire(t *testing.T) {
	t.Parallel()
	mini := redistest.Miniredis(t)
	noon := time.Date(2026, time.January, 1, 12, 0, 0, 0, time.UTC)
	mini.SetTime(noon.Add(-time.Minute))
	b := rig.Bucket("b", 1)
	b.DedupeWindow = 0
	b.Schedules = []shaper.Schedule{{Name: "noon", Cron: "0 12 * * *"}}
	for name, steps := range map[string][]time.Duration{ // from a minute before noon
		"forward, and back": {0, 2 * time.Hour, -2 * time.Hour, 30 * time.Minute, time.Hour},
		"back, and forward": {0, -2 * time.Hour, -time.Hour, 2 * time.Minute, -time.Minute, 3 * time.Minute, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			mini.FlushAll()
			mini.SetTime(noon.Add(-time.Minute))
			f := newFirers(t, 2, b, func() producer.Config { return producer.Config{Redis: redistest.ClientOf(t, mini)} })
			var made []string
			for i, step := range steps {
				mini.SetTime(noon.Add(-time.Minute).Add(step))
				f.fireDue(i % 2)
				for _, id := range f.ids() { // so that a second fire would be another job
					made = append(made, id)
					must.Get(f.all[0].store.Cancel(t.Context(), "b", id, ""))(t)
				}
			}
			if got, want := fmt.Sprint(made), fireIDs("noon", noon); got != want || len(f.runs("noon")) != 1 {
				t.Errorf("%s, want %s; runs %+v", got, want, f.runs("noon"))
			}
		})
	}
}

// fireIDs are the ids of the jobs of fires of a schedule.
func fireIDs(name string, fires ...time.Time) string {
	ids := make([]string, len(fires))
	for i, at := range fires {
		ids[i] = shaper.ScheduleJobID(name, at)
	}
	return fmt.Sprint(ids)
}

// control is what an operator does to a schedule.
func (f *firers) control(name, action, text string) {
	f.t.Helper()
	d := f.own[0]
	if change, _, err := d.store.ControlSchedule(f.t.Context(), store.HomeOf(d.Bucket), name, action, "ann", text); err != nil || change != store.ScheduleChanged {
		f.t.Fatalf("%s %s: %d, %v", action, name, change, err)
	}
}

// A fire that comes after a schedule was made, changed or resumed, and before a dispatcher has seen that, is a fire as any other.
func TestFiresBeforeADispatcherLooks(t *testing.T) {
	t.Parallel()
	mini := redistest.Miniredis(t)
	start := time.Date(2026, time.January, 1, 11, 0, 0, 0, time.UTC)
	at := func(hour int) time.Time { return start.Add(time.Duration(hour-11) * time.Hour) }
	mini.SetTime(start)
	b := rig.Bucket("b", 1)
	b.Schedules = []shaper.Schedule{{Name: "s", Cron: "0 */3 * * *", CatchUp: schedule.CatchUpAll}}
	f := newFirers(t, 1, b, func() producer.Config { return producer.Config{Redis: redistest.ClientOf(t, mini)} })
	mini.SetTime(at(13)) // no dispatcher ran at 12:00
	f.fireDue(0)
	if got, want := fmt.Sprint(f.ids()), fireIDs("s", at(12)); got != want {
		t.Errorf("new: %s, want %s", got, want)
	}
	f.control("s", "pause", "")
	mini.SetTime(at(16)) // 15:00 is in the pause
	f.control("s", "resume", "")
	mini.SetTime(at(19))
	f.fireDue(0)
	if got, want := fmt.Sprint(f.ids()), fireIDs("s", at(12), at(18)); got != want {
		t.Errorf("resumed: %s, want %s", got, want)
	}
	made := shaper.Schedule{Name: "made", Cron: "0 20 * * *"}
	text := must.Get(store.DefinitionText(&made))(t)
	f.control("made", "set", text)
	mini.SetTime(at(20).Add(time.Second))
	f.fireDue(0)
	if got := f.ids(); !slices.Contains(got, shaper.ScheduleJobID("made", at(20))) {
		t.Errorf("made: %s", got)
	}
}

// The clock is set back, and then a schedule is resumed: what has fired does not fire again, although no id is remembered.
func TestAStepBackBeforeAResume(t *testing.T) {
	t.Parallel()
	mini := redistest.Miniredis(t)
	noon := time.Date(2026, time.January, 1, 12, 0, 0, 0, time.UTC)
	mini.SetTime(noon.Add(-time.Minute))
	b := rig.Bucket("b", 1)
	b.DedupeWindow = 0
	b.Schedules = []shaper.Schedule{{Name: "s", Cron: "0 * * * *"}}
	f := newFirers(t, 1, b, func() producer.Config { return producer.Config{Redis: redistest.ClientOf(t, mini)} })
	f.fireDue(0)
	mini.SetTime(noon.Add(time.Second))
	f.fireDue(0)
	if got, want := fmt.Sprint(f.ids()), fireIDs("s", noon); got != want {
		t.Fatalf("%s, want %s", got, want)
	}
	d := f.own[0]
	if state, err := d.store.Cancel(t.Context(), "b", shaper.ScheduleJobID("s", noon), ""); err != nil || state != shaper.StateCancelled {
		t.Fatal(state, err)
	}
	f.control("s", "pause", "")
	mini.SetTime(noon.Add(-10 * time.Minute))
	f.control("s", "resume", "")
	f.fireDue(0)
	mini.SetTime(noon.Add(time.Minute / 2))
	f.fireDue(0)
	mini.SetTime(noon.Add(time.Hour))
	f.fireDue(0)
	if got, want := fmt.Sprint(f.ids()), fireIDs("s", noon.Add(time.Hour)); got != want {
		t.Errorf("after the step: %s, want %s", got, want)
	}
}

// A clock that was a year ahead leaves a schedule that is due in a year. To pause and resume it has it count by the clock again.
func TestAResumeAfterAWrongClock(t *testing.T) {
	t.Parallel()
	mini := redistest.Miniredis(t)
	noon := time.Date(2026, time.January, 1, 12, 0, 0, 0, time.UTC)
	mini.SetTime(noon.Add(-time.Minute))
	b := rig.Bucket("b", 1)
	b.Schedules = []shaper.Schedule{{Name: "s", Cron: "0 * * * *"}}
	f := newFirers(t, 1, b, func() producer.Config { return producer.Config{Redis: redistest.ClientOf(t, mini)} })
	f.fireDue(0)
	ahead := noon.AddDate(1, 0, 0)
	mini.SetTime(ahead)
	f.fireDue(0)
	mini.SetTime(noon)
	f.control("s", "pause", "")
	f.control("s", "resume", "")
	f.fireDue(0)
	mini.SetTime(noon.Add(time.Hour))
	f.fireDue(0)
	want := []string{shaper.ScheduleJobID("s", noon.Add(time.Hour)), shaper.ScheduleJobID("s", ahead)}
	if got := f.ids(); !slices.Equal(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
}

// The job of a schedule whose flow has to exist, and does not, waits until it does.
func TestASchedulesFlowHasToExist(t *testing.T) {
	t.Parallel()
	mini := redistest.Miniredis(t)
	noon := time.Date(2026, time.January, 1, 12, 0, 0, 0, time.UTC)
	mini.SetTime(noon.Add(-time.Minute))
	b := rig.Flowing("b", shaper.FlowKeyJob)
	b.Flow.MustExist = true
	b.Schedules = []shaper.Schedule{{Name: "s", Cron: "0 12 * * *", Job: shaper.ScheduledJob{Flow: "acme"}}}
	f := newFirers(t, 1, b, func() producer.Config { return producer.Config{Redis: redistest.ClientOf(t, mini)} })
	f.fireDue(0)
	mini.SetTime(noon)
	f.fireDue(0)
	found, err := f.all[0].store.Schedules(t.Context(), store.HomeOf(f.own[0].Bucket), "s")
	if err != nil || len(found) != 1 || found[0].Fired != 0 || found[0].Blocked != string(shaper.ReasonUnknownFlow) {
		t.Fatalf("%+v, %v", found, err)
	}
	client := must.Get(rig.NewActors(producer.Config{Redis: redistest.ClientOf(t, mini), Buckets: []shaper.Bucket{b}}))(t)
	var patch operator.FlowPatch
	_ = patch.Put(shaper.FlowWeight, "1")
	must.Get(client.Op.As("anna").Bucket("b").Flow("acme").Set(t.Context(), patch))(t)
	mini.SetTime(noon.Add(time.Minute))
	f.fireDue(0)
	if found, err = f.all[0].store.Schedules(t.Context(), store.HomeOf(f.own[0].Bucket), "s"); err != nil || found[0].Fired != 1 || found[0].Blocked != "" {
		t.Errorf("%+v, %v", found[0], err)
	}
}

// The metric of missed fires counts what the history counts, also where a job is blocked for a while, and where a fire is skipped.
func TestMissedFiresAreCountedOnce(t *testing.T) {
	t.Parallel()
	mini := redistest.Miniredis(t)
	noon := time.Date(2026, time.January, 1, 12, 0, 0, 0, time.UTC)
	mini.SetTime(noon.Add(-time.Minute))
	b := rig.Bucket("b", 1)
	b.Capacity, b.Shed = 1, shaper.NoShedding
	b.Schedules = []shaper.Schedule{{Name: "s", Cron: "0 * * * *", Overlap: schedule.OverlapSkip}}
	f := newFirers(t, 1, b, func() producer.Config { return producer.Config{Redis: redistest.ClientOf(t, mini)} })
	f.fireDue(0)
	client := must.Get(rig.NewActors(producer.Config{Redis: redistest.ClientOf(t, mini), Buckets: []shaper.Bucket{b}}))(t)
	must.Get(client.Enqueue(t.Context(), shaper.Job{Bucket: "b", ID: "other"}))(t)
	for i := range 5 { // three fires are due, and none gets in
		mini.SetTime(noon.Add(2*time.Hour + time.Minute + time.Duration(i)*10*time.Second))
		f.fireDue(0)
	}
	must.Get(client.Cancel(t.Context(), "b", "other"))(t)
	mini.SetTime(noon.Add(2*time.Hour + 2*time.Minute))
	f.fireDue(0)                                        // 14:00 gets in, 12:00 and 13:00 are missed
	mini.SetTime(noon.Add(5*time.Hour + 2*time.Minute)) // 17:00 is skipped, 15:00 and 16:00 are missed
	f.fireDue(0)
	found, err := f.all[0].store.Schedules(t.Context(), store.HomeOf(f.own[0].Bucket), "s")
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	if found[0].Fired != 1 || found[0].Missed != 4 || found[0].Skipped != 1 {
		t.Errorf("%d fired, %d missed, %d skipped", found[0].Fired, found[0].Missed, found[0].Skipped)
	}
	counted := rig.Scrape(t, f.registry, "tundish_schedule_fires_total")
	for outcome, want := range map[string]float64{"fired": 1, "missed": 4, "skipped": 1} {
		if got := counted["tundish_schedule_fires_total{bucket=b,outcome="+outcome+"}"]; got != want {
			t.Errorf("%s is counted %v times, want %v: %v", outcome, got, want, counted)
		}
	}
}
