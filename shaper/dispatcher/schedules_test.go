package dispatcher

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/schedule"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/producer"
)

// firers are dispatchers of one bucket, of which a test makes the looks at schedules.
type firers struct {
	t   *testing.T
	all []*Dispatcher
	own []*scheduler

	registry *prometheus.Registry
}

// newFirers makes n dispatchers of a bucket with schedules, which is configured.
func newFirers(t *testing.T, n int, b shaper.Bucket, conn func() producer.Config) *firers {
	t.Helper()
	f := &firers{t: t, registry: prometheus.NewRegistry()}
	for range n {
		cfg := conn()
		cfg.Buckets = []shaper.Bucket{b}
		d := must.Get(New(Config{Redis: cfg.Redis, Buckets: cfg.Buckets, Workers: rig.Workers(cfg.Buckets, shaper.WorkerFunc(nil)), Registerer: f.registry}))(t)
		known := d.store.Known(b.Name)
		must.OK(t, d.store.Configure(t.Context(), known))
		f.all = append(f.all, d)
		f.own = append(f.own, newBucketLoop(d, known, t.Context()).schedules)
	}
	return f
}

// fireDue has a dispatcher look until it has nothing to do.
func (f *firers) fireDue(n int) {
	f.t.Helper()
	for range 500 {
		f.own[n].fireDue(f.t.Context())
		if f.own[n].failed {
			f.t.Fatal("a look at the schedules failed")
		}
		if f.own[n].next.After(time.Now()) {
			return
		}
	}
	f.t.Fatal("there is no end to what is due")
}

// ids are those of all jobs in the bucket.
func (f *firers) ids() []string {
	f.t.Helper()
	ids := f.all[0].store.Redis.HKeys(f.t.Context(), f.own[0].Keys.Body()).Val()
	slices.Sort(ids)
	return ids
}

func (f *firers) runs(name string) []shaper.ScheduleRun {
	f.t.Helper()
	runs := must.Get(f.all[0].store.ScheduleRuns(f.t.Context(), store.HomeOf(f.own[0].Bucket), name))(f.t)
	return runs
}

// byTheClock lists when clocks of a zone show one of some times of day in a year, by looking at them each minute: the first time of
// the day, or each time.
func byTheClock(t *testing.T, zone string, year int, eachTime bool, wanted func(shown time.Time) bool) []time.Time {
	t.Helper()
	place := must.Get(time.LoadLocation(zone))(t)
	var found []time.Time
	seen := map[string]bool{}
	end := time.Date(year+1, time.January, 1, 0, 0, 0, 0, time.UTC)
	for at := time.Date(year, time.January, 1, 0, 0, 0, 0, time.UTC).Add(time.Minute); at.Before(end); at = at.Add(time.Minute) {
		shown := at.In(place)
		if day := shown.Format("2006-01-02 15:04"); wanted(shown) && (eachTime || !seen[day]) {
			seen[day] = true
			found = append(found, at)
		}
	}
	return found
}

// A year (in `make test` the weeks around the changes) of five schedules in two time zones, with both changes of the clocks in each. Three dispatchers look when their own clocks, which
// are up to 2 s wrong, say that a fire is due, in any order. Each fire makes one job.
func TestAYearOfSchedules(t *testing.T) {
	t.Parallel()
	const newYork, paris = "America/New_York", "Europe/Paris"
	daily := func(hour, minute int) func(time.Time) bool {
		return func(shown time.Time) bool { return shown.Hour() == hour && shown.Minute() == minute }
	}
	lost := func(text string) []time.Time { // times that no clock shows: they fire at the change
		at := must.Get(time.Parse(time.RFC3339, text))(t)
		return []time.Time{at}
	}
	year := map[string][]time.Time{
		"night":  slices.Concat(byTheClock(t, newYork, 2026, false, daily(2, 30)), lost("2026-03-08T03:00:00-04:00")),
		"early":  byTheClock(t, newYork, 2026, false, daily(1, 30)),
		"often":  byTheClock(t, paris, 2026, true, func(shown time.Time) bool { return shown.Hour()%4 == 2 && shown.Minute() == 30 }),
		"month":  byTheClock(t, paris, 2026, false, func(shown time.Time) bool { return shown.Day() == 1 && daily(0, 0)(shown) }),
		"sunday": slices.Concat(byTheClock(t, paris, 2026, false, func(shown time.Time) bool { return shown.Weekday() == time.Sunday && daily(2, 15)(shown) }), lost("2026-03-29T03:00:00+02:00")),
	}
	b := rig.Bucket("b", 1)
	b.Capacity, b.Shed = 100_000, shaper.NoShedding
	for name, line := range map[string][2]string{
		"night": {"30 2 * * *", newYork}, "early": {"30 1 * * *", newYork}, "often": {"30 2/4 * * *", paris}, "month": {"@monthly", paris}, "sunday": {"15 2 * * SUN", paris},
	} {
		if name == "often" {
			line[0] = "30 */4 * * *"
			year[name] = byTheClock(t, paris, 2026, true, func(shown time.Time) bool { return shown.Hour()%4 == 0 && shown.Minute() == 30 })
		}
		b.Schedules = append(b.Schedules, shaper.Schedule{Name: name, Cron: line[0], Timezone: line[1], CatchUp: schedule.CatchUpNone})
	}
	day := func(month time.Month, day int) time.Time { return time.Date(2026, month, day, 0, 0, 0, 0, time.UTC) }
	spans := [][2]time.Time{{day(time.March, 1), day(time.April, 8)}, {day(time.October, 18), day(time.November, 8)}} // around the changes
	if redistest.Soak {
		spans = [][2]time.Time{{day(time.January, 1), day(time.January, 1).AddDate(1, 0, 0)}}
	}
	for _, span := range spans {
		mini := redistest.Miniredis(t)
		mini.SetTime(span[0])
		want := map[string][]time.Time{}
		for name, times := range year {
			want[name] = slices.DeleteFunc(slices.Clone(times), func(at time.Time) bool { return !at.After(span[0]) || !at.Before(span[1]) })
		}
		f := newFirers(t, 3, b, func() producer.Config { return producer.Config{Redis: redistest.ClientOf(t, mini)} })
		var instants []time.Time
		for _, times := range want {
			instants = append(instants, times...)
		}
		slices.SortFunc(instants, time.Time.Compare)
		seed := rand.Uint64()
		t.Log("seed", seed)
		random := rand.New(rand.NewPCG(seed, 1))
		f.fireDue(0)
		looks := 0
		for _, at := range slices.CompactFunc(instants, time.Time.Equal) {
			type look struct {
				who int
				at  time.Time
			}
			var order []look
			for who := range f.all {
				skew := time.Duration(random.IntN(4001)-2000) * time.Millisecond
				order = append(order, look{who, at.Add(skew)}, look{who, at.Add(max(skew, 0) + time.Duration(random.IntN(1000))*time.Millisecond)})
			}
			slices.SortFunc(order, func(a, b look) int { return a.at.Compare(b.at) })
			for _, one := range order {
				mini.SetTime(one.at)
				f.fireDue(one.who)
				looks++
			}
		}
		var wanted []string
		for name, times := range want {
			for _, at := range times {
				wanted = append(wanted, shaper.ScheduleJobID(name, at))
			}
		}
		slices.Sort(wanted)
		got := f.ids()
		t.Logf("%d fires, %d jobs, %d looks", len(wanted), len(got), looks)
		for _, id := range wanted {
			if !slices.Contains(got, id) {
				t.Errorf("%s has not fired", id)
			}
		}
		for _, id := range got {
			if !slices.Contains(wanted, id) {
				t.Errorf("%s is none of the fires", id)
			}
		}
		fired := int64(0) // a second fire of the same time would have the same id
		for name := range want {
			found, err := f.all[0].store.Schedules(t.Context(), store.HomeOf(f.own[0].Bucket), name)
			if err != nil || len(found) != 1 || found[0].Missed != 0 || found[0].Skipped != 0 {
				t.Fatalf("%s: %+v, %v", name, found, err)
			}
			fired += found[0].Fired
		}
		must.Equal(t, fired, int64(len(wanted)), "the schedules count fires, want %d", len(wanted))
		if days := int(span[1].Sub(span[0]).Hours() / 24); len(wanted) < 7*days {
			t.Errorf("%d fires in %d days, want about eight a day", len(wanted), days)
		}
	}
}

// Dispatchers that see the same fire at the same time make one job of it, on a real server, also if ids are not remembered.
func TestOneOfManyFires(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := rig.Bucket("b", 1)
	b.DedupeWindow = 0
	for i := range 40 {
		b.Schedules = append(b.Schedules, shaper.Schedule{Name: fmt.Sprint("s", i), Cron: "@every 1s"})
	}
	f := newFirers(t, 4, b, func() producer.Config { return producer.Config{Redis: server.Client()} })
	f.fireDue(0)
	due := fmt.Sprint(time.Now().Add(-time.Minute / 2).Truncate(time.Second).UnixMicro())
	keys := f.own[0].Keys
	for i := range 40 { // each due at the same time, once
		name := fmt.Sprint("s", i)
		text := f.all[0].store.Redis.HGet(t.Context(), keys.Schedules(), name+":state").Val()
		state := must.Get(store.ReadScheduleState(text))(t)
		text = strings.Replace(text, `"due":"`+state.Due+`"`, `"due":"`+due+`"`, 1)
		f.all[0].store.Redis.HSet(t.Context(), keys.Schedules(), name+":state", text)
	}
	var all sync.WaitGroup
	for n := range f.all {
		for i := range 40 {
			all.Go(func() {
				name := fmt.Sprint("s", i)
				values := f.all[n].store.Redis.HMGet(t.Context(), keys.Schedules(), name+":state", name).Val()
				state, _ := values[0].(string)
				definition, _ := values[1].(string)
				if !strings.Contains(state, due) {
					return // it is over
				}
				if err := f.own[n].fire(t.Context(), time.Now(), dueSchedule{name, state, definition}); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	perSchedule := map[string]int{}
	for _, id := range f.ids() {
		perSchedule[id]++
	}
	at := time.UnixMicro(mustInt(t, due))
	for i := range 40 {
		must.Equal(t, perSchedule[shaper.ScheduleJobID(fmt.Sprint("s", i), at)], 1, "s%d: jobs", i)
	}
}

func mustInt(t *testing.T, text string) (n int64) {
	t.Helper()
	must.Get(fmt.Sscan(text, &n))(t)
	return n
}

// A full bucket keeps a fire due. When there is room again its job gets in, unless catch_up has given it up.
func TestAFullBucketKeepsAFireDue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		catch schedule.CatchUp
		want  string
	}{
		{schedule.CatchUpNone, "missed 12:00:00 bucket-full"},
		{schedule.CatchUpLast, "fired 12:00:00"},
	} {
		mini := redistest.Miniredis(t)
		noon := time.Date(2026, time.January, 1, 12, 0, 0, 0, time.UTC)
		mini.SetTime(noon.Add(-time.Hour))
		b := rig.Bucket("b", 1)
		b.Capacity, b.Shed = 1, shaper.NoShedding
		b.Schedules = []shaper.Schedule{{Name: "noon", Cron: "0 12 * * *", CatchUp: c.catch, Job: shaper.ScheduledJob{Payload: []byte("hello")}}}
		f := newFirers(t, 2, b, func() producer.Config { return producer.Config{Redis: redistest.ClientOf(t, mini)} })
		f.fireDue(0)
		client := must.Get(rig.NewActors(producer.Config{Redis: redistest.ClientOf(t, mini), Buckets: []shaper.Bucket{b}}))(t)
		must.Get(client.Enqueue(t.Context(), shaper.Job{Bucket: "b", ID: "other"}))(t)
		mini.SetTime(noon)
		f.fireDue(0)
		f.fireDue(1)
		if got := f.ids(); fmt.Sprint(got) != "[other]" {
			t.Errorf("while it is full: %v", got)
		}
		mini.SetTime(noon.Add(2 * time.Minute))
		must.Get(client.Cancel(t.Context(), "b", "other"))(t)
		f.fireDue(1)
		runs := f.runs("noon")
		if len(runs) != 1 || strings.TrimSpace(fmt.Sprint(runs[0].Outcome, " ", runs[0].Fire.Format(time.TimeOnly), " ", runs[0].Reason)) != c.want {
			t.Errorf("catch_up %s: %+v, want %s", c.catch, runs, c.want)
		}
		if c.catch == schedule.CatchUpLast {
			must.Equal(t, runs[0].Lateness(), 2*time.Minute, "late by")
			body := f.all[0].store.Redis.HGet(t.Context(), f.own[0].Keys.Body(), shaper.ScheduleJobID("noon", noon)).Val()
			must.Equal(t, string(must.Get(codec.Open(body))(t).Payload), "hello", "%q", body)
		}
	}
}

// A dispatcher whose reply is lost does not know that it has fired. The next look finds that it has.
func TestALostReplyOfAFire(t *testing.T) {
	t.Parallel()
	b := rig.Bucket("b", 1)
	b.Schedules = []shaper.Schedule{{Name: "s", Cron: "0 0 1 1 *", CatchUp: schedule.CatchUpLast}}
	w := rig.NewWorld(t, b)
	f := newFirers(t, 1, b, func() producer.Config { return producer.Config{Redis: rig.Connect(t, w.Proxy.Addr())} })
	f.fireDue(0)
	w.Enqueue(1) // so that the server knows the script
	d := f.own[0]
	if _, _, err := d.store.ControlSchedule(t.Context(), store.HomeOf(d.Bucket), "s", "fire", "ann", ""); err != nil {
		t.Fatal(err)
	}
	lost := w.Proxy.DropReply(lua.Enqueue.SHA() + "\r\n")
	f.own[0].fireDue(t.Context())
	<-lost
	if !f.own[0].failed || len(f.ids()) != 2 {
		t.Fatalf("failed %t, %d jobs", f.own[0].failed, len(f.ids()))
	}
	f.own[0].failed = false
	f.fireDue(0)
	if runs := f.runs("s"); len(f.ids()) != 2 || len(runs) != 1 || runs[0].AskedBy != "ann" {
		t.Errorf("%v, runs %+v", f.ids(), runs)
	}
}
