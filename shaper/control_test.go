package shaper

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/lua"
)

func mustPatch(t *testing.T, pairs ...string) BucketPatch {
	t.Helper()
	var p BucketPatch
	for i := 0; i < len(pairs); i += 2 {
		if err := p.Put(Setting(pairs[i]), pairs[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func (w *world) info() BucketInfo {
	w.t.Helper()
	infos, err := w.client.op.BucketInfos(context.WithoutCancel(w.t.Context()), w.bucket.Name)
	if err != nil {
		w.t.Fatal(err)
	}
	return infos[0]
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
	stopA := w.dispatch(WorkerFunc(w.note), nil)
	stopB := w.dispatch(WorkerFunc(w.note), nil)
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
	stop := w.dispatch(WorkerFunc(w.note), nil)
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

func TestChangesThatDoNotFit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testBucket("b", 100))
	control := w.client.op.Control("anna")
	for _, c := range []struct{ setting, value, want string }{
		{"rate", "0/s", "pause it"}, {"rate", "-5/s", "want 1 or more"}, {"rate", "NaN/s", "not a whole number"}, {"rate", "1000001/s", "more than 1000000"},
		{"rate", "", "want a number and a period"}, {"burst", "x", "not a whole number"}, {"name", "x", "is no setting"}, {"dedupe_window", "1h", "is no setting"},
	} {
		var p BucketPatch
		if err := p.Put(Setting(c.setting), c.value); err == nil || !strings.HasPrefix(err.Error(), c.setting+": ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %q: %v, want %q", c.setting, c.value, err, c.want)
		}
	}
	for _, pairs := range [][]string{
		{"rate", "5 tokens/s"}, {"burst", "0"}, {"capacity", "-1"}, {"max_in_flight", "0"}, {"shed.low", "95"}, {"rate", "1/744h", "burst", "1000000"}, nil,
	} {
		_, err := control.Set(t.Context(), "b", mustPatch(t, pairs...))
		if _, ok := errors.AsType[*InvalidChangeError](err); !ok {
			t.Errorf("%v: %v", pairs, err)
		}
	}
	if _, err := control.Reset(t.Context(), "b", "name"); err == nil || !strings.Contains(err.Error(), "is no setting") {
		t.Error(err)
	}
	if err := control.Pause(t.Context(), "b", strings.Repeat("x", MaxReason+1)); err == nil || !strings.Contains(err.Error(), "at most 500 bytes") {
		t.Error(err)
	}
	if info := w.info(); len(info.Pins) != 0 || info.Pause != nil {
		t.Errorf("something was changed: %+v", info)
	}
}

// Buckets that left the configuration can be controlled, those that never were
// cannot.
func TestControlOfOtherBuckets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testBucket("b", 100))
	former, err := newActors(ClientConfig{Redis: w.server.Client(), Buckets: []Bucket{testBucket("old", 1)}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := former.Enqueue(t.Context(), Job{Bucket: "old", Payload: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	control := w.client.op.Control(" anna\n" + strings.Repeat("é", 100))
	if len(control.by) > maxBy || strings.ContainsAny(control.by, "\n\ufffd") {
		t.Errorf("by %q", control.by)
	}
	for bucket, known := range map[string]bool{"old": true, "never": false, "No name": false} {
		_, setErr := control.Set(t.Context(), bucket, mustPatch(t, "capacity", "5"))
		_, resetErr := control.Reset(t.Context(), bucket)
		_, resumeErr := control.Resume(t.Context(), bucket)
		purged, purgeErr := control.Purge(t.Context(), bucket, PurgeOptions{})
		for what, err := range map[string]error{
			"pause": control.Pause(t.Context(), bucket, ""), "set": setErr, "reset": resetErr, "resume": resumeErr, "purge": purgeErr,
		} {
			if known && err != nil || !known && !errors.Is(err, ErrUnknownBucket) {
				t.Errorf("%s %q: %v", what, bucket, err)
			}
		}
		if known && purged.Jobs != 1 {
			t.Errorf("purged %+v of %q", purged, bucket)
		}
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

func TestWhy(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_700_000_000, 0)
	pause := &Pause{Since: at, By: "anna", Reason: "down"}
	for _, c := range []struct {
		job      JobInfo
		holds    string
		why      string
		earliest time.Time
	}{
		{JobInfo{State: StateQueued, ETA: at}, "[pace]", "it is the next", at},
		{JobInfo{State: StateQueued, Position: 3, ETA: at}, "[ahead]", "3 ahead of it", at},
		{JobInfo{State: StateQueued, Position: 3, Pause: pause}, "[paused ahead]", "paused since 2023-11-14T22:13:20Z by anna (down); 3 ahead", time.Time{}},
		{JobInfo{State: StateScheduled, Due: at, NextSlot: at.Add(-1)}, "[not-before]", "its time has not come", at},
		{JobInfo{State: StateScheduled, Due: at, Pause: pause}, "[paused not-before]", "down", time.Time{}},
		{JobInfo{State: StateRetrying, Attempts: 2, Due: at, NextSlot: at.Add(1), Last: LastResponse{Reason: "timeout"}}, "[backoff]",
			"attempt 2 failed (timeout)", at.Add(1)},
		{JobInfo{State: StateRetrying, Crashes: lastChance, Due: at}, "[last-chance]", "died 2 times in a row", at},
		{JobInfo{State: StateQueued, InFlight: 9, MaxInFlight: 8, ETA: at}, "[pace max-in-flight]", "9 of at most 8 are in flight", at},
		{JobInfo{State: StateInFlight, Pause: pause}, "[]", "a dispatcher has it", time.Time{}},
		{JobInfo{State: StateDead, Last: LastResponse{Cause: CausePoison}}, "[]", "poison", time.Time{}},
		{JobInfo{State: StateDone}, "[]", "", time.Time{}},
	} {
		if got := fmt.Sprint(c.job.Holds()); got != c.holds {
			t.Errorf("%+v: holds %s, want %s", c.job, got, c.holds)
		}
		if got := c.job.Why(); !strings.Contains(got, c.why) || (c.why == "") != (got == "") {
			t.Errorf("%+v: %q, want %q", c.job, got, c.why)
		}
		if got := c.job.Earliest(); !got.Equal(c.earliest) {
			t.Errorf("%+v: earliest %s, want %s", c.job, got, c.earliest)
		}
	}
}
