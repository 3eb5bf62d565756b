package shaper

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
	"github.com/tundish-io/tundish/lua"
)

// Pools of the configuration are told by their names, and no others.
func TestCollectorOfPools(t *testing.T) {
	t.Parallel()
	pool, idle := Pool{Name: "p", Rate: perSecond(1000), MaxInFlight: 2}, Pool{Name: "idle", Rate: perSecond(5)}
	w := newPoolWorld(t, pooled("a", 1000, 3, pool), pooled("b", 1000, 1, pool), pooled("c", 10, 1, idle), testBucket("alone", 10))
	other := w.clientOf(pooled("d", 10, 1, Pool{Name: "other", Rate: perSecond(1)}))
	for _, client := range []*actors{w.client, other} {
		if err := client.JoinPools(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	worker := newWaiting()
	w.enqueue("a", 3, nil)
	run(w, 1, worker)
	<-worker.began
	<-worker.began
	var slower BucketPatch
	if err := slower.Put(SettingRate, "50/s"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.op.Control("anna").SetPool(t.Context(), "p", slower); err != nil {
		t.Fatal(err)
	}
	got := scrape(t, registryOf(NewCollector(t.Context(), w.client.op)), "tundish_pool_")
	if slot := got["tundish_pool_last_slot_timestamp_seconds{pool=p}"]; slot < 1e9 || slot > 1e11 {
		t.Errorf("the last slot is %f", slot)
	}
	maps.DeleteFunc(got, func(series string, _ float64) bool { return strings.Contains(series, "_last_slot_") })
	want := map[string]float64{
		"tundish_pool_rate_per_second{pool=p}": 50, "tundish_pool_in_flight_jobs{pool=p}": 2, "tundish_pool_max_in_flight{pool=p}": 2,
		"tundish_pool_pinned_settings{pool=p}": 1, "tundish_pool_bucket_weight{bucket=a,pool=p}": 3, "tundish_pool_bucket_weight{bucket=b,pool=p}": 1,
		"tundish_pool_rate_per_second{pool=idle}": 5, "tundish_pool_in_flight_jobs{pool=idle}": 0, "tundish_pool_pinned_settings{pool=idle}": 0,
		"tundish_pool_bucket_weight{bucket=c,pool=idle}": 1,
	}
	if !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	for range 3 {
		worker.end <- Done(200)
	}
}

// A paused bucket stands still in all dispatchers, and goes on at its pace.
func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	const rate, jobs = 200, 120
	w := newWorld(t, testBucket("b", rate))
	control := w.client.op.Control("anna")
	if err := control.Pause(t.Context(), "b", "tests"); err != nil {
		t.Fatal(err)
	}
	stopA := dispatch(w, WorkerFunc(w.note), nil)
	stopB := dispatch(w, WorkerFunc(w.note), nil)
	w.enqueue(jobs)
	// Whoever asks is answered that there is nothing to do, whatever waits.
	reply, err := lua.Claim.Run(t.Context(), w.server.Client(), nil, bucketKeys("b").forClaim([]string{""}, nil), "d", "c", 10, 200_000, 30_000_000, 0, lastChance, 1,
		expiredLast, 0, "", wakeChannel, "b", maxClaimBytes, 0, 0, 1)
	if r := lua.NewReader(reply); err != nil || r.Int() != 0 || r.Int() == 0 || r.Int() != 0 || r.Left() != 8 {
		t.Errorf("claimed from a paused bucket: %v, %v", reply, err)
	}
	if info := w.info(); info.Pause == nil || info.Pause.By != "anna" || info.Pause.Reason != "tests" || info.Now.Sub(info.Pause.Since) > time.Minute {
		t.Errorf("bucket %+v, pause %+v", info, info.Pause)
	}
	if n := w.history.Check().Delivered; n != 0 {
		t.Errorf("%d left a paused bucket", n)
	}
	for range 2 {
		if _, err := control.Resume(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
	}
	w.await(jobs)
	if err := errors.Join(stopA(), stopB()); err != nil {
		t.Error(err)
	}
	w.wantClean()
	// Slots obey 200/s; what is seen of them here is as late as this machine is
	// busy, but no later than a permit may be.
	const window = 100 * time.Millisecond
	explained := int(rate*(window+w.bucket.EffectivePermitTTL()).Seconds()) + 1
	if most := w.history.Check().MostIn(window); most > explained {
		t.Errorf("%d in %s after the pause, want at most %d", most, window, explained)
	}
}

// A dispatcher that sleeps until the slot of an hourly rate is woken by a new one.
func TestNewRateHoldsAtOnce(t *testing.T) {
	t.Parallel()
	b := testBucket("b", 1)
	b.Rate.Per = time.Hour
	w := newWorld(t, b)
	stop := dispatch(w, WorkerFunc(w.note), nil)
	w.enqueue(30)
	began := time.Now()
	changes, err := w.client.op.Control("anna").Set(t.Context(), "b", mustPatch(t, "rate", "50/s", "max_in_flight", "7"))
	if err != nil || fmt.Sprint(changes) != "[rate 1/h → 50/s max_in_flight 256 → 7]" {
		t.Errorf("changes %v, %v", changes, err)
	}
	w.await(30)
	if took := time.Since(began); took < 29*20*time.Millisecond {
		t.Errorf("30 jobs left in %s", took)
	}
	if info := w.info(); info.Rate.String() != "50/s" || info.MaxInFlight != 7 || len(info.Pins) != 2 || info.Pins[0].Configured != "1/h" ||
		info.Pins[1].By != "anna" || info.Now.Sub(info.Pins[0].At) > time.Minute {
		t.Errorf("bucket %+v", info)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	w.wantClean()

	// An older configuration, started again and again, changes nothing; nor does this one.
	for _, revision := range []int64{-1, -1, 0} {
		old := b
		old.Revision, old.MaxInFlight = revision, 99
		client, err := newActors(ClientConfig{Redis: w.server.Client(), Buckets: []Bucket{old}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Enqueue(t.Context(), Job{Bucket: "b", Payload: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		if info := w.info(); info.Rate.String() != "50/s" || info.MaxInFlight != 7 {
			t.Errorf("revision %d: %+v", revision, info)
		}
	}
	if changes, err := w.client.op.Control("bert").Reset(t.Context(), "b"); err != nil || fmt.Sprint(changes) != "[rate 50/s → 1/h max_in_flight 7 → 99]" {
		t.Errorf("changes %v, %v", changes, err)
	}
}

// The look ahead and the lateness of permits follow the rate that is in force.
func TestDrainObeysTheRateInForce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testBucket("b", 100))
	if _, err := w.client.op.Control("anna").Set(t.Context(), "b", mustPatch(t, "rate", "1/h")); err != nil {
		t.Fatal(err)
	}
	d, err := NewDispatcher(DispatcherConfig{Redis: w.server.Client(), Buckets: []Bucket{w.bucket}, Workers: map[string]Worker{"test": WorkerFunc(w.note)}})
	if err != nil {
		t.Fatal(err)
	}
	r := newDrain(d, d.store.buckets["b"], t.Context())
	if got := r.obeyed().Rate.String(); got != "100/s" {
		t.Errorf("before the first claim: %s", got)
	}
	if _, err := r.claim(t.Context(), "c", 1); err != nil {
		t.Fatal(err)
	}
	if got := r.obeyed().Rate.String(); got != "1/h" || r.permitTTL != MaxPermitTTL {
		t.Errorf("rate %s, permit_ttl %s", got, r.permitTTL)
	}
}

// A purge whose replies are lost is the same purge; one that is cut off is
// finished by the sweeper, or by the next.
func TestPurgeGoesOn(t *testing.T) {
	t.Parallel()
	const jobs = 3*purgeBatch + 10
	w := newWorld(t, testBucket("b", 1))
	batch := make([]Job, jobs)
	fill := func() {
		t.Helper()
		for i := range batch {
			batch[i] = Job{Bucket: "b", Payload: []byte("x")}
		}
		if _, err := w.client.Enqueue(t.Context(), batch...); err != nil {
			t.Fatal(err)
		}
	}
	fill()
	control := w.client.op.Control("anna")
	first := w.proxy.DropReply(lua.Purge.SHA())
	if purged, err := control.Purge(t.Context(), "b", PurgeOptions{}); err != nil || purged != (Purged{Jobs: jobs}) {
		t.Errorf("purged %+v, %v", purged, err)
	}
	<-first

	cut := func() {
		t.Helper()
		fill()
		reply, err := lua.Purge.Run(t.Context(), w.server.Client(), nil, bucketKeys("b").forPurge(""), "dead", 0, purgeBatch, purgeBytes, 0, "")
		if n, decodeErr := lua.Integers(reply); err != nil || decodeErr != nil || n[2] != purgeBatch || n[4] != jobs-purgeBatch {
			t.Fatalf("%v, %v, %v", reply, err, decodeErr)
		}
		if err := w.server.Client().HDel(t.Context(), bucketKeys("b").count(), "purge_id").Err(); err != nil { // as of another
			t.Fatal(err)
		}
	}
	cut()
	if purged, err := control.Purge(t.Context(), "b", PurgeOptions{}); err != nil || purged != (Purged{}) {
		t.Errorf("purged %+v, %v: the other one's was to be finished, and nothing was left", purged, err)
	}
	if info := w.info(); info.Purging != 0 || info.Unfinished != 0 || info.Purged != 2*jobs {
		t.Errorf("bucket %+v", info)
	}

	cut()
	if err := w.server.Client().HIncrBy(t.Context(), bucketKeys("b").count(), "purge_at", -time.Minute.Microseconds()).Err(); err != nil {
		t.Fatal(err)
	}
	d, err := NewDispatcher(DispatcherConfig{Redis: w.server.Client(), Buckets: []Bucket{w.bucket}, Workers: map[string]Worker{"test": WorkerFunc(w.note)}})
	if err != nil {
		t.Fatal(err)
	}
	r := newDrain(d, d.store.buckets["b"], t.Context())
	if err := r.sweep(t.Context(), &sweepWatch{}, 0, true); err != nil {
		t.Fatal(err)
	}
	if info := w.info(); info.Purging != 0 || info.Unfinished != 0 || info.Purged != 3*jobs {
		t.Errorf("bucket %+v", info)
	}

	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := control.Purge(ctx, "b", PurgeOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a purge that nobody waits for: %v", err)
	}
}

// A pool is told with all its buckets: those of the configuration, those that Redis knows,
// and what each has in flight.
func TestPoolDetails(t *testing.T) {
	t.Parallel()
	hour := admission.Rate{Count: 300, Per: time.Hour, Unit: admission.UnitRequests}
	pool := Pool{Name: "p", Rate: perSecond(1000), MaxInFlight: 2, Quotas: []admission.Rate{hour, perSecond(900)}, Revision: 3}
	w := newPoolWorld(t, pooled("b", 1000, 5, pool), pooled("a", 10, 1, pool), testBucket("alone", 10))
	look := func(client *actors, names ...string) PoolDetails {
		t.Helper()
		all, err := client.op.PoolDetails(t.Context(), names...)
		if err != nil || len(all) != 1 {
			t.Fatalf("%+v, %v", all, err)
		}
		return all[0]
	}
	if p := look(w.client); p.Configured || fmt.Sprint(p.Buckets) != "[{a 1 0 false} {b 5 0 false}]" || !p.LastSlot.IsZero() || p.Quotas != nil {
		t.Errorf("before it is used: %+v", p)
	}
	known, err := w.client.op.KnownPools(t.Context())
	if err != nil || len(known) != 0 || fmt.Sprint(w.client.op.Pools()) != "[p]" {
		t.Errorf("%v, %v, %v", known, w.client.op.Pools(), err)
	}
	worker := newWaiting()
	w.enqueue("b", 3, nil)
	run(w, 1, worker)
	<-worker.began
	<-worker.began
	p := look(w.client)
	if !p.Configured || p.Revision != 3 || p.Rate != pool.Rate || p.Burst != 1 || p.MaxInFlight != 2 || fmt.Sprint(p.Quotas) != fmt.Sprint(pool.Quotas) {
		t.Errorf("it obeys %+v", p)
	}
	if p.InFlight != 2 || fmt.Sprint(p.Buckets) != "[{a 1 0 false} {b 5 2 true}]" || p.Now.Sub(p.LastSlot).Abs() > time.Hour || len(p.Pins) != 0 {
		t.Errorf("it has %+v", p)
	}
	// Who has none of this configured sees what Redis knows.
	stranger := w.clientOf(testBucket("alone", 10))
	if all, err := stranger.op.PoolDetails(t.Context()); err != nil || all != nil {
		t.Errorf("of no pool: %+v, %v", all, err)
	}
	if known, err := stranger.op.KnownPools(t.Context()); err != nil || fmt.Sprint(known) != "[p]" {
		t.Errorf("%v, %v", known, err)
	}
	if p := look(stranger, "p"); p.InFlight != 2 || !slices.Contains(p.Buckets, PoolBucket{Name: "b", Weight: 5, InFlight: 2, HasWork: true}) {
		t.Errorf("seen from elsewhere: %+v", p)
	}
	for range 3 {
		worker.end <- Done(200)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.client.op.PoolDetails(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// An idle dispatcher writes what a reload changed at once.
func TestDispatcherReconfigures(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testBucket("idle", 10))
	ctx, stop := context.WithCancel(t.Context())
	d, err := NewDispatcher(DispatcherConfig{Redis: connect(t, w.proxy.Addr()), Buckets: []Bucket{w.bucket},
		Workers: map[string]Worker{"test": WorkerFunc(w.note)}})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	capacity := func() string {
		text, _ := w.server.Client().HGet(t.Context(), "tundish:{idle}:b:idle:settings", "capacity").Result()
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
	b := w.bucket
	b.Capacity = 77
	other := testBucket("idle", 10)
	other.Worker = "nobody"
	if err := d.Reconfigure([]Bucket{other}); err == nil {
		t.Error("a worker that is not registered was taken")
	}
	if err := d.Reconfigure([]Bucket{b, testBucket("unknown", 1)}); err != nil {
		t.Fatal(err)
	}
	until("77")
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
