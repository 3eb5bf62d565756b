package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/stored"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
)

// Pools of the configuration are told by their names, and no others.
func TestCollectorOfPools(t *testing.T) {
	t.Parallel()
	pool, idle := shaper.Pool{Name: "p", Rate: rig.PerSecond(1000), MaxInFlight: 2}, shaper.Pool{Name: "idle", Rate: rig.PerSecond(5)}
	w := rig.NewPoolWorld(t, rig.Pooled("a", 1000, 3, pool), rig.Pooled("b", 1000, 1, pool), rig.Pooled("c", 10, 1, idle), rig.Bucket("alone", 10))
	other := w.ClientOf(rig.Pooled("d", 10, 1, shaper.Pool{Name: "other", Rate: rig.PerSecond(1)}))
	for _, client := range []*rig.Actors{w.Client, other} {
		must.OK(t, client.JoinPools(t.Context()))
	}
	worker := rig.NewWaiting()
	w.Enqueue("a", 3, nil)
	run(w, 1, worker)
	<-worker.Began
	<-worker.Began
	var slower operator.BucketPatch
	must.OK(t, slower.Put(shaper.SettingRate, "50/s"))
	must.Get(w.Client.Op.As("anna").Pool("p").Set(t.Context(), slower))(t)
	got := rig.Scrape(t, rig.RegistryOf(operator.NewCollector(t.Context(), w.Client.Op)), "tundish_pool_")
	if slot := got["tundish_pool_last_slot_timestamp_seconds{pool=p}"]; slot < 1e9 || slot > 1e11 {
		t.Errorf("the last slot is %f", slot)
	}
	maps.DeleteFunc(got, func(series string, _ float64) bool { return strings.Contains(series, "_last_slot_") })
	want := map[string]float64{
		"tundish_pool_rate_per_second{pool=p}": 50, "tundish_pool_in_flight_jobs{pool=p}": 2, "tundish_pool_max_in_flight{pool=p}": 2,
		"tundish_pool_overridden_settings{pool=p}": 1, "tundish_pool_bucket_weight{bucket=a,pool=p}": 3, "tundish_pool_bucket_weight{bucket=b,pool=p}": 1,
		"tundish_pool_rate_per_second{pool=idle}": 5, "tundish_pool_in_flight_jobs{pool=idle}": 0, "tundish_pool_overridden_settings{pool=idle}": 0,
		"tundish_pool_holds{pool=p}": 0, "tundish_pool_breakers{pool=p,state=open}": 0, "tundish_pool_breakers{pool=p,state=half-open}": 0,
		"tundish_pool_adaptive_factor{pool=p}": 1, "tundish_pool_holds{pool=idle}": 0, "tundish_pool_breakers{pool=idle,state=open}": 0,
		"tundish_pool_breakers{pool=idle,state=half-open}": 0, "tundish_pool_adaptive_factor{pool=idle}": 1,
		"tundish_pool_bucket_weight{bucket=c,pool=idle}": 1,
	}
	if !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	for range 3 {
		worker.End <- shaper.Done(200)
	}
}

// A paused bucket stands still in all dispatchers, and goes on at its pace.
func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	const rate, jobs = 200, 120
	w := rig.NewWorld(t, rig.Bucket("b", rate))
	control := w.Client.Op.As("anna")
	must.OK(t, control.Bucket("b").Pause(t.Context(), "tests"))
	stopA := dispatch(w, shaper.WorkerFunc(w.Note), nil)
	stopB := dispatch(w, shaper.WorkerFunc(w.Note), nil)
	w.Enqueue(jobs)
	// Whoever asks is answered that there is nothing to do, whatever waits.
	reply, err := lua.Claim.Run(t.Context(), w.Server.Client(), nil, store.BucketKeys("b").OfGroups(lua.Claim, []string{""}, nil), "d", "c", 10, 200_000, 30_000_000, 0, lastChance, 1,
		expiredLast, 0, "", store.WakeChannel, "b", maxClaimBytes, 0, 0, 0, 1)
	if r := lua.NewReader(reply); err != nil || r.Int() != 0 || r.Int() == 0 || r.Int() != 0 || r.Left() != 10 {
		t.Errorf("claimed from a paused bucket: %v, %v", reply, err)
	}
	if info := w.Info(); info.Pause == nil || info.Pause.By != "anna" || info.Pause.Reason != "tests" || info.Now.Sub(info.Pause.Since) > time.Minute {
		t.Errorf("bucket %+v, pause %+v", info, info.Pause)
	}
	must.Equal(t, w.History.Check().Delivered, 0, "left a paused bucket")
	for range 2 {
		must.Get(control.Bucket("b").Resume(t.Context()))(t)
	}
	w.Await(jobs)
	if err := errors.Join(stopA(), stopB()); err != nil {
		t.Error(err)
	}
	w.WantClean()
	// Slots obey 200/s; what is seen of them here is as late as this machine is
	// busy, but no later than a permit may be.
	const window = 100 * time.Millisecond
	explained := int(rate*(window+w.Bucket.EffectivePermitTTL()).Seconds()) + 1
	if most := w.History.Check().MostIn(window); most > explained {
		t.Errorf("%d in %s after the pause, want at most %d", most, window, explained)
	}
}

// A dispatcher that sleeps until the slot of an hourly rate is woken by a new one.
func TestNewRateHoldsAtOnce(t *testing.T) {
	t.Parallel()
	b := rig.Bucket("b", 1)
	b.Rate.Per = time.Hour
	w := rig.NewWorld(t, b)
	stop := dispatch(w, shaper.WorkerFunc(w.Note), nil)
	w.Enqueue(30)
	began := time.Now()
	changes, err := w.Client.Op.As("anna").Bucket("b").Set(t.Context(), rig.MustPatch(t, "rate", "50/s", "max_in_flight", "7"))
	if err != nil || fmt.Sprint(changes) != "[rate 1/h → 50/s max_in_flight 256 → 7]" {
		t.Errorf("changes %v, %v", changes, err)
	}
	w.Await(30)
	if took := time.Since(began); took < 29*20*time.Millisecond {
		t.Errorf("30 jobs left in %s", took)
	}
	if info := w.Info(); info.Rate.String() != "50/s" || info.MaxInFlight != 7 || len(info.Overrides) != 2 || info.Overrides[0].Configured != "1/h" ||
		info.Overrides[1].By != "anna" || info.Now.Sub(info.Overrides[0].At) > time.Minute {
		t.Errorf("bucket %+v", info)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	w.WantClean()

	// An older configuration, started again and again, changes nothing; nor does this one.
	for _, revision := range []int64{-1, -1, 0} {
		old := b
		old.Revision, old.MaxInFlight = revision, 99
		client := must.Get(rig.NewActors(producer.Config{Redis: w.Server.Client(), Buckets: []shaper.Bucket{old}}))(t)
		must.OK(t, client.JoinPools(t.Context()))
		if info := w.Info(); info.Rate.String() != "50/s" || info.MaxInFlight != 7 {
			t.Errorf("revision %d: %+v", revision, info)
		}
	}
	if changes, err := w.Client.Op.As("bert").Bucket("b").Reset(t.Context()); err != nil || fmt.Sprint(changes) != "[rate 50/s → 1/h max_in_flight 7 → 99]" {
		t.Errorf("changes %v, %v", changes, err)
	}
}

// The look ahead and the lateness of permits follow the rate that is in force.
func TestDrainObeysTheRateInForce(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t, rig.Bucket("b", 100))
	must.Get(w.Client.Op.As("anna").Bucket("b").Set(t.Context(), rig.MustPatch(t, "rate", "1/h")))(t)
	d := must.Get(New(Config{Timeout: rig.Patience, Redis: w.Server.Client(), Buckets: []shaper.Bucket{w.Bucket}, Workers: rig.Workers([]shaper.Bucket{w.Bucket}, shaper.WorkerFunc(w.Note))}))(t)
	r := newBucketLoop(d, d.store.Known("b"), t.Context())
	must.Equal(t, r.claims.obeyed().Rate.String(), "100/s", "before the first claim")
	must.Get(r.claims.claim(t.Context(), "c", 1))(t)
	if got := r.claims.obeyed().Rate.String(); got != "1/h" || r.claims.permitTTL != shaper.MaxPermitTTL {
		t.Errorf("rate %s, permit_ttl %s", got, r.claims.permitTTL)
	}
}

// A purge whose replies are lost is the same purge; one that is cut off is
// finished by the sweeper, or by the next.
func TestPurgeGoesOn(t *testing.T) {
	t.Parallel()
	const jobs = 3*store.PurgeBatch + 10
	w := rig.NewWorld(t, rig.Bucket("b", 1))
	batch := make([]shaper.Job, jobs)
	fill := func() {
		t.Helper()
		for i := range batch {
			batch[i] = shaper.Job{Bucket: "b", Payload: []byte("x")}
		}
		must.Get(w.Client.Enqueue(t.Context(), batch...))(t)
	}
	fill()
	control := w.Client.Op.As("anna")
	first := w.Proxy.DropReply(lua.Purge.SHA() + "\r\n")
	must.Equal(t, must.Get(control.Bucket("b").Purge(t.Context(), operator.PurgeOptions{}))(t), (operator.Purged{Jobs: jobs}), "purged")
	<-first

	cut := func() {
		t.Helper()
		fill()
		reply, err := lua.Purge.Run(t.Context(), w.Server.Client(), nil, store.BucketKeys("b").Of(lua.Purge, ""), "dead", 0, store.PurgeBatch, store.ScriptBytes, 0, "")
		if n, decodeErr := lua.Integers(reply); err != nil || decodeErr != nil || n[2] != store.PurgeBatch || n[4] != jobs-store.PurgeBatch {
			t.Fatalf("%v, %v, %v", reply, err, decodeErr)
		}
		if err := w.Server.Client().HDel(t.Context(), store.BucketKeys("b").Count(), "purge_id").Err(); err != nil { // as of another
			t.Fatal(err)
		}
	}
	cut()
	if purged, err := control.Bucket("b").Purge(t.Context(), operator.PurgeOptions{}); err != nil || purged != (operator.Purged{}) {
		t.Errorf("purged %+v, %v: the other one's was to be finished, and nothing was left", purged, err)
	}
	if info := w.Info(); info.Purging != 0 || info.Unfinished != 0 || info.Purged != 2*jobs {
		t.Errorf("bucket %+v", info)
	}

	cut()
	must.OK(t, w.Server.Client().HIncrBy(t.Context(), store.BucketKeys("b").Count(), "purge_at", -time.Minute.Microseconds()).Err())
	d := must.Get(New(Config{Timeout: rig.Patience, Redis: w.Server.Client(), Buckets: []shaper.Bucket{w.Bucket}, Workers: rig.Workers([]shaper.Bucket{w.Bucket}, shaper.WorkerFunc(w.Note))}))(t)
	r := newBucketLoop(d, d.store.Known("b"), t.Context())
	must.OK(t, patrolOf(r).sweep(t.Context(), 0, true))
	if info := w.Info(); info.Purging != 0 || info.Unfinished != 0 || info.Purged != 3*jobs {
		t.Errorf("bucket %+v", info)
	}

	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := control.Bucket("b").Purge(ctx, operator.PurgeOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a purge that nobody waits for: %v", err)
	}
}

// A pool is told with all its buckets: those of the configuration, those that Redis knows,
// and what each has in flight.
func TestPoolDetails(t *testing.T) {
	t.Parallel()
	hour := admission.Rate{Count: 300, Per: time.Hour, Unit: admission.UnitRequests}
	pool := shaper.Pool{Name: "p", Rate: rig.PerSecond(1000), MaxInFlight: 2, Quotas: []admission.Rate{hour, rig.PerSecond(900)}, Revision: 3}
	w := rig.NewPoolWorld(t, rig.Pooled("b", 1000, 5, pool), rig.Pooled("a", 10, 1, pool), rig.Bucket("alone", 10))
	look := func(client *rig.Actors, names ...string) operator.PoolDetails {
		t.Helper()
		all, err := client.Op.PoolDetails(t.Context(), names...)
		if err != nil || len(all) != 1 {
			t.Fatalf("%+v, %v", all, err)
		}
		return all[0]
	}
	if p := look(w.Client); p.Configured || fmt.Sprint(p.Buckets) != "[{a 1 0 false} {b 5 0 false}]" || !p.LastSlot.IsZero() || p.Quotas != nil {
		t.Errorf("before it is used: %+v", p)
	}
	known, err := w.Client.Op.KnownPools(t.Context())
	if err != nil || len(known) != 0 || fmt.Sprint(w.Client.Op.Pools()) != "[p]" {
		t.Errorf("%v, %v, %v", known, w.Client.Op.Pools(), err)
	}
	worker := rig.NewWaiting()
	w.Enqueue("b", 3, nil)
	run(w, 1, worker)
	<-worker.Began
	<-worker.Began
	p := look(w.Client)
	if !p.Configured || p.Revision != 3 || p.Rate != pool.Rate || p.Burst != 1 || p.MaxInFlight != 2 || fmt.Sprint(p.Quotas) != fmt.Sprint(pool.Quotas) {
		t.Errorf("it obeys %+v", p)
	}
	if p.InFlight != 2 || fmt.Sprint(p.Buckets) != "[{a 1 0 false} {b 5 2 true}]" || p.Now.Sub(p.LastSlot).Abs() > time.Hour || len(p.Overrides) != 0 {
		t.Errorf("it has %+v", p)
	}
	// Who has none of this configured sees what Redis knows.
	stranger := w.ClientOf(rig.Bucket("alone", 10))
	if all, err := stranger.Op.PoolDetails(t.Context()); err != nil || all != nil {
		t.Errorf("of no pool: %+v, %v", all, err)
	}
	if known, err := stranger.Op.KnownPools(t.Context()); err != nil || fmt.Sprint(known) != "[p]" {
		t.Errorf("%v, %v", known, err)
	}
	if p := look(stranger, "p"); p.InFlight != 2 || !slices.Contains(p.Buckets, operator.PoolBucket{Name: "b", Weight: 5, InFlight: 2, HasWork: true}) {
		t.Errorf("seen from elsewhere: %+v", p)
	}
	for range 3 {
		worker.End <- shaper.Done(200)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Client.Op.PoolDetails(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// An idle dispatcher writes what a reload changed at once.
func TestDispatcherReconfigures(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t, rig.Bucket("idle", 10))
	ctx, stop := context.WithCancel(t.Context())
	workers := rig.Workers([]shaper.Bucket{w.Bucket}, shaper.WorkerFunc(w.Note))
	d := must.Get(New(Config{Redis: rig.Connect(t, w.Proxy.Addr()), Buckets: []shaper.Bucket{w.Bucket}, Workers: workers}))(t)
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	capacity := func() string {
		text, _ := w.Server.Client().HGet(t.Context(), stored.Key("idle", "settings"), "capacity").Result()
		return text
	}
	until := func(want string) {
		t.Helper()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		deadline := time.After(time.Minute)
		for capacity() != want {
			select {
			case <-tick.C:
			case <-deadline:
				t.Fatalf("capacity %q, want %q", capacity(), want)
			}
		}
	}
	until("10000")
	b := w.Bucket
	b.Capacity = 77
	must.OK(t, d.Reconfigure([]shaper.Bucket{b}, workers, nil))
	until("77")
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
