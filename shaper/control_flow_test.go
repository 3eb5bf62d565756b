package shaper

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
)

// newFlowing is a bucket with flows; its jobs are placed by hand.
func newFlowing(t *testing.T) *stepped {
	t.Helper()
	b := testBucket("b", 100)
	flow := DefaultFlowSettings()
	flow.Key, flow.MaxInFlight, flow.Capacity, flow.MaxFlows = FlowKeyJob, 3, 4, 5
	flow.Rate = admission.Rate{Count: 1, Per: 10 * time.Second, Unit: admission.UnitRequests}
	b.Flow = &flow
	s := newSteppedBucket(t, newWaiting(), b)
	if err := s.client.JoinPools(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// put places a job of a flow in a state, and returns its lease.
func (s *stepped) put(id, flow string, state State) *leased {
	s.t.Helper()
	ctx, k, now := s.t.Context(), bucketKeys("b"), s.now.UnixMicro()
	job := Job{Bucket: "b", ID: id, Flow: flow, Payload: []byte("x")}
	sealed, err := seal(nil, &job, false)
	if err != nil {
		s.t.Fatal(err)
	}
	setIndex(sealed, 1)
	counted := parseFlowState(s.redis.HGet(ctx, k.flows(), flow).Val())
	pipe := s.redis.Pipeline()
	pipe.HSet(ctx, k.count(), "seq", 1)
	pipe.HSet(ctx, k.body(), id, fmt.Sprintf("0 %d %s", now, sealed))
	if state == StateInFlight || state == StateDead {
		pipe.HSet(ctx, k.meta(), id, fmt.Sprintf("%d 1 0 0 0 c ", slices.Index(stateCodes[:], state)))
	}
	at := redis.Z{Member: id, Score: float64(now)}
	switch state {
	case StateInFlight:
		pipe.ZAdd(ctx, k.leases(), at)
		counted.inFlight++
	case StateDead:
		pipe.ZAdd(ctx, k.dead(), at)
		counted.unfinished--
	default:
		pipe.RPush(ctx, k.queue(flow), id)
	}
	if counted.unfinished++; counted.unfinished > 0 {
		pipe.HSet(ctx, k.flows(), flow, fmt.Sprintf("0 0 - 0 %d %d %d .khnld", counted.unfinished, counted.scheduled, counted.inFlight))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		s.t.Fatal(err)
	}
	return &leased{Attempt: Attempt{ID: id, Flow: flow}, mark: string(sealed[:markLength]), epoch: 1, claim: "c"}
}

func (s *stepped) turnOf(flow string) time.Duration {
	s.t.Helper()
	score, err := s.redis.ZScore(s.t.Context(), bucketKeys("b").due(), flow).Result()
	if err != nil {
		return -1
	}
	return time.UnixMicro(int64(score)).Sub(s.now.Truncate(time.Microsecond))
}

// Outcomes of many flows travel in one script, and each flow gets its own.
func TestSettlementsOfFlows(t *testing.T) {
	t.Parallel()
	s := newFlowing(t)
	r := s.drain()
	var batch []*settlement
	for i := range settleBatch {
		flow := fmt.Sprint("f", i)
		s.put(fmt.Sprint("w", i), flow, StateQueued)
		batch = append(batch, &settlement{job: s.put(fmt.Sprint("j", i), flow, StateInFlight), result: ResultReturned})
	}
	r.sendSettlements(batch)
	for i := range settleBatch {
		flow := fmt.Sprint("f", i)
		ids := s.redis.LRange(t.Context(), bucketKeys("b").queue(flow), 0, -1).Val()
		if want := fmt.Sprintf("[j%d w%d]", i, i); fmt.Sprint(ids) != want || s.turnOf(flow) != 0 {
			t.Errorf("flow %s: %v, its turn is in %s", flow, ids, s.turnOf(flow))
		}
	}
	if info, err := s.client.op.BucketInfos(t.Context(), "b"); err != nil || info[0].Flows != settleBatch || info[0].FlowsWait != settleBatch ||
		!info[0].HasFlows || info[0].InFlight != 0 || info[0].Waiting != 2*settleBatch {
		t.Errorf("bucket %+v, %v", info, err)
	}
}

// A patrol sees by the calendar whether there is something to send; a sweep takes
// back what ran out in any flow, and mends the calendar.
func TestPatrolOfFlows(t *testing.T) {
	t.Parallel()
	s := newFlowing(t)
	r := s.drain()
	r.setSleeping(true)
	waiting := func() bool {
		t.Helper()
		sights := s.d.look(t.Context(), []*drain{r})
		if sights[0].err != nil {
			t.Fatal(sights[0].err)
		}
		return sights[0].waiting
	}
	at := time.Now()
	r.clock.observe(at, at, s.now.UnixMicro())
	if waiting() {
		t.Error("something waits in an empty bucket")
	}
	for i := range 300 {
		s.put(fmt.Sprint("j", i), fmt.Sprint("f", i), StateInFlight)
	}
	s.put("w", "astray", StateQueued)
	if waiting() {
		t.Error("something waits, and is not on the calendar")
	}
	s.step(time.Millisecond)
	var w sweepWatch
	for range 2 {
		if err := r.sweep(t.Context(), &w, s.now.UnixMicro(), true); err != nil {
			t.Fatal(err)
		}
	}
	s.wantState(StateQueued, "j0", "j299", "w")
	if s.turnOf("astray") != 0 || s.turnOf("f299") != 0 || !waiting() {
		t.Errorf("turns in %s and %s, waiting %t", s.turnOf("astray"), s.turnOf("f299"), waiting())
	}
	if w.auditing || w.missing != 0 || w.nextAudit.IsZero() {
		t.Errorf("the audit came to %+v", w)
	}
	// The calendar has a clock of its own, ahead of the server's.
	s.redis.Del(t.Context(), bucketKeys("b").due())
	s.redis.ZAdd(t.Context(), bucketKeys("b").due(), redis.Z{Member: "f1", Score: float64(s.now.Add(time.Hour).UnixMicro())})
	if waiting() {
		t.Error("what is due in an hour waits")
	}
	s.redis.HSet(t.Context(), bucketKeys("b").pace(), "offset", time.Hour.Microseconds()+1000)
	if !waiting() {
		t.Error("what is due by the calendar's clock does not wait")
	}
}

func TestJobsOfFlows(t *testing.T) {
	t.Parallel()
	s := newFlowing(t)
	ctx := t.Context()
	for i := range 3 {
		s.put(fmt.Sprint("a", i), "a", StateQueued)
	}
	for _, id := range []string{"d1", "d2", "d3"} {
		s.put(id, "a", StateDead)
	}
	s.put("other", "b", StateDead)
	if sum, err := s.client.op.RedriveAll(ctx, "b", 100); err != nil || sum != (Redriven{Moved: 2, FlowFull: 2}) {
		t.Errorf("redriven %+v, %v", sum, err)
	}
	if state, err := s.client.Cancel(ctx, "b", "a2"); err != nil || state != StateCancelled {
		t.Errorf("cancelled: %v, %v", state, err)
	}
	if state, err := s.client.op.DropDead(ctx, "b", "d3"); err != nil || state != StateDropped {
		t.Errorf("dropped: %v, %v", state, err)
	}
	if _, err := s.client.Cancel(ctx, "b", "nobody"); !errors.Is(err, ErrNotFound) {
		t.Errorf("cancelled: %v", err)
	}
	if err := s.client.op.Control("anna").PauseFlow(ctx, "b", "a", "a leak"); err != nil {
		t.Fatal(err)
	}
	s.redis.HSet(ctx, bucketKeys("b").conf(), "flow_quotas", "1 60000000;")
	s.redis.RPush(ctx, bucketKeys("b").flowDeparted("a"), s.now.UnixMicro())
	s.redis.HSet(ctx, bucketKeys("b").flows(), "a", fmt.Sprintf("%d 0 1/10000000 0 4 0 3 .n", s.now.UnixMicro()))
	job, err := s.client.Job(ctx, "b", "a1")
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(job.Holds()); got != "[flow-paused ahead flow-max-in-flight flow-pace quota]" || job.Flow != "a" || !job.Earliest().IsZero() {
		t.Errorf("holds %s, job %+v", got, job)
	}
	for _, part := range []string{`flow "a" is paused since `, " by anna (a leak)", "1 ahead of it", `3 of at most 3 of flow "a"`, "at its own pace",
		"as many have left as a quota allows"} {
		if !strings.Contains(job.Why(), part) {
			t.Errorf("%q is not in %q", part, job.Why())
		}
	}
}

func TestControlOfFlows(t *testing.T) {
	t.Parallel()
	s := newFlowing(t)
	ctx, control := t.Context(), s.client.op.Control("anna")
	s.put("w", "a b", StateQueued)
	patch := func(pairs ...string) FlowPatch {
		t.Helper()
		var p FlowPatch
		for i := 0; i < len(pairs); i += 2 {
			if err := p.Put(FlowSetting(pairs[i]), pairs[i+1]); err != nil {
				t.Fatal(err)
			}
		}
		return p
	}
	text := func(own OwnFlow) string {
		t.Helper()
		pause := own.Pause
		own.Pause = nil
		out, err := json.Marshal(own)
		if err != nil {
			t.Fatal(err)
		}
		if pause != nil {
			return fmt.Sprintf("%s, paused by %s (%s)", out, pause.By, pause.Reason)
		}
		return string(out)
	}
	full := patch("rate", "20/s", "burst", "2", "capacity", "0", "max_in_flight", "7", "weight", "3", "url", "https://example.com/a")
	if err := errors.Join(full.PutHeaders(map[string]string{"X-A": "1"}), full.PutSecrets([]string{"whsec_x"})); err != nil {
		t.Fatal(err)
	}
	own, err := control.SetFlow(ctx, "b", "a b", full)
	const all = `{"Rate":"20/s","Burst":2,"Capacity":0,"MaxInFlight":7,"Weight":3,` +
		`"URL":"https://example.com/a","Headers":{"X-A":"1"},"Secrets":["whsec_x"]`
	if got := text(own); err != nil || !strings.HasPrefix(got, all) {
		t.Errorf("set: %s, %v", got, err)
	}
	if err := control.PauseFlow(ctx, "b", "a b", "two\nlines"); err != nil {
		t.Fatal(err)
	}
	var less FlowPatch
	if err := less.Clear(FlowRate, FlowCapacity, FlowHeaders); err != nil {
		t.Fatal(err)
	}
	if own, err = control.SetFlow(ctx, "b", "a b", less); err != nil || own.Capacity != nil || own.Headers != nil || !own.Rate.IsZero() ||
		*own.Burst != 2 || own.Pause == nil || own.Pause.Reason != "two\nlines" || len(own.Secrets) != 1 {
		t.Errorf("cleared: %s, %v", text(own), err)
	}
	info, err := control.Flow(ctx, "b", "a b")
	if err != nil || info.Waiting != 1 || info.InFlight != 0 || *info.Own.Weight != 3 || !info.Own.Pause.Since.Equal(s.now.Truncate(time.Microsecond)) {
		t.Errorf("flow %+v, %v", info, err)
	}
	if had, err := control.DeleteFlowSettings(ctx, "b", "a b"); err != nil || !had {
		t.Errorf("deleted: %t, %v", had, err)
	}
	if was, err := control.ResumeFlow(ctx, "b", "a b"); err != nil || !was || s.turnOf("a b") != 0 {
		t.Errorf("resumed: %t, %v; its turn is in %s", was, err, s.turnOf("a b"))
	}
	if had, err := control.DeleteFlowSettings(ctx, "b", "a b"); err != nil || had {
		t.Errorf("deleted again: %t, %v", had, err)
	}
	if n := s.redis.Exists(ctx, bucketKeys("b").flowSettings()).Val(); n != 0 {
		t.Error("settings are left")
	}
}

// What does not fit changes nothing, and says why.
func TestControlOfFlowsRefuses(t *testing.T) {
	t.Parallel()
	s := newFlowing(t)
	ctx, control := t.Context(), s.client.op.Control("anna")
	for value, want := range map[string]string{
		"rate 0/s": "rate: \"0/s\" would mean that the flow is paused: pause it", "rate -1/s": "rate: ", "rate 5 tokens/s": "rate: \"5 tokens/s\": only requests",
		"burst 0": "burst: 0: want 1 to", "weight 0": "weight: 0: want 1 to 1000", "weight 1001": "weight: 1001: want 1 to 1000",
		"capacity -1": "capacity: -1: want 0 to", "max_in_flight x": "max_in_flight: \"x\" is not a whole number", "url ftp://x/": "url: want an absolute http",
		"paused 1": "paused: is no setting of a flow: want rate, burst",
	} {
		var p FlowPatch
		setting, text, _ := strings.Cut(value, " ")
		if err := p.Put(FlowSetting(setting), text); err == nil || !strings.HasPrefix(err.Error(), want) || !p.IsZero() {
			t.Errorf("%s: %v", value, err)
		}
	}
	var slow, empty FlowPatch
	if empty.PutHeaders(map[string]string{"X-A": "1\n2"}) == nil || empty.PutHeaders(map[string]string{"X A": ""}) == nil ||
		empty.PutSecrets([]string{""}) == nil {
		t.Error("headers and secrets that cannot be were taken")
	}
	_, _ = slow.Put(FlowRate, "1/h"), slow.Put(FlowBurst, "10000")
	for _, err := range []error{
		func() error { _, err := control.SetFlow(ctx, "b", "f", slow); return err }(),
		func() error { _, err := control.SetFlow(ctx, "b", "f", empty); return err }(),
		control.PauseFlow(ctx, "b", strings.Repeat("x", MaxFlowBytes+1), ""),
		control.PauseFlow(ctx, "b", "\xff", ""),
		control.PauseFlow(ctx, "b", "f", strings.Repeat("x", MaxReason+1)),
	} {
		if _, ok := errors.AsType[*InvalidChangeError](err); !ok {
			t.Errorf("answered %v", err)
		}
	}
	if err := control.PauseFlow(ctx, "nosuch", "f", ""); !errors.Is(err, ErrUnknownBucket) {
		t.Errorf("paused a flow of no bucket: %v", err)
	}
	plain := newStepped(t, newWaiting())
	for _, err := range []error{
		plain.client.op.Control("anna").PauseFlow(ctx, "b", "f", ""),
		func() error {
			_, err := plain.client.op.Control("anna").PurgeFlow(ctx, "b", "f", PurgeOptions{})
			return err
		}(),
		func() error { _, _, err := plain.client.op.Control("anna").Flows(ctx, "b", "", 10); return err }(),
	} {
		if !errors.Is(err, ErrNoFlows) {
			t.Errorf("without flows: %v", err)
		}
	}
}

// Flows are listed, also those that have settings and no jobs; and purged, one or all.
func TestListAndPurgeFlows(t *testing.T) {
	t.Parallel()
	s := newFlowing(t)
	ctx, control := t.Context(), s.client.op.Control("anna")
	for i := range 20 {
		s.put(fmt.Sprint("w", i), fmt.Sprint("f", i%5), StateQueued)
	}
	s.put("flying", "f0", StateInFlight)
	for _, flow := range []string{"f1", "quiet"} {
		if err := control.PauseFlow(ctx, "b", flow, ""); err != nil {
			t.Fatal(err)
		}
	}
	found := map[string]FlowInfo{}
	for cursor, again := "", true; again; again = cursor != "" {
		var infos []FlowInfo
		var err error
		if infos, cursor, err = control.Flows(ctx, "b", cursor, 2); err != nil {
			t.Fatal(err)
		}
		for _, info := range infos {
			if _, twice := found[info.Flow]; twice {
				t.Errorf("%s is listed twice", info.Flow)
			}
			found[info.Flow] = info
		}
	}
	if len(found) != 6 || found["f0"].Waiting != 4 || found["f0"].InFlight != 1 || found["f1"].Own.Pause == nil || found["quiet"].Own.Pause == nil ||
		found["f2"].Own.Pause != nil {
		t.Errorf("flows %+v", found)
	}
	for _, cursor := range []string{"x1", "j", "jx"} {
		if _, _, err := control.Flows(ctx, "b", cursor, 2); err == nil {
			t.Errorf("cursor %q was taken", cursor)
		}
	}
	if purged, err := control.PurgeFlow(ctx, "b", "f3", PurgeOptions{}); err != nil || purged != (Purged{Jobs: 4}) {
		t.Errorf("purged %+v, %v", purged, err)
	}
	s.wantState(StateCancelled, "w3", "w18")
	s.wantState(StateQueued, "w4", "w0")
	if purged, err := control.Purge(ctx, "b", PurgeOptions{}); err != nil || purged != (Purged{Jobs: 16}) {
		t.Errorf("purged %+v, %v", purged, err)
	}
	s.wantState(StateCancelled, "w0", "w1", "w2", "w4")
	s.wantState(StateInFlight, "flying")
	if info, err := control.Flow(ctx, "b", "f0"); err != nil || info.Waiting != 0 || info.InFlight != 1 {
		t.Errorf("flow %+v, %v", info, err)
	}
}
