package operator_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/operator"
)

func TestJobsOfFlows(t *testing.T) {
	t.Parallel()
	s := rig.NewFlowing(t)
	ctx := t.Context()
	for i := range 3 {
		s.Put(fmt.Sprint("a", i), "a", shaper.StateQueued)
	}
	for _, id := range []string{"d1", "d2", "d3"} {
		s.Put(id, "a", shaper.StateDead)
	}
	s.Put("other", "b", shaper.StateDead)
	must.Equal(t, must.Get(s.Client.Op.As("anna").Bucket("b").Dead().RedriveAll(ctx, 100))(t), (operator.Redriven{Moved: 2, FlowFull: 2}), "redriven")
	must.Equal(t, must.Get(s.Client.Cancel(ctx, "b", "a2"))(t), shaper.StateCancelled, "cancelled")
	must.Equal(t, must.Get(s.Client.Op.As("anna").Bucket("b").Dead().Drop(ctx, "d3"))(t), shaper.StateDropped, "dropped")
	if _, err := s.Client.Cancel(ctx, "b", "nobody"); !errors.Is(err, shaper.ErrNotFound) {
		t.Errorf("cancelled: %v", err)
	}
	must.OK(t, s.Client.Op.As("anna").Bucket("b").Flow("a").Pause(ctx, "a leak"))
	s.Redis.HSet(ctx, store.BucketKeys("b").Conf(), "flow_quotas", "1 60000000;")
	s.Redis.RPush(ctx, store.BucketKeys("b").FlowDeparted("a"), s.Now.UnixMicro())
	s.Redis.HSet(ctx, store.BucketKeys("b").Flows(), "a", fmt.Sprintf("%d 0 1/10000000 0 4 0 3 .n", s.Now.UnixMicro()))
	job := must.Get(s.Client.Job(ctx, "b", "a1"))(t)
	if got := fmt.Sprint(job.BlockedBy()); got != "[flow-paused ahead flow-max-in-flight flow-pace quota]" || job.Flow != "a" || !job.Earliest().IsZero() {
		t.Errorf("blocked by %s, job %+v", got, job)
	}
	for _, part := range []string{`flow "a" is paused since `, " by anna (a leak)", "1 ahead of it", `3 of at most 3 of flow "a"`, "at its own pace",
		"as many have left as its quota of "} {
		if !strings.Contains(job.Why(), part) {
			t.Errorf("%q is not in %q", part, job.Why())
		}
	}
}

func TestControlOfFlows(t *testing.T) {
	t.Parallel()
	s := rig.NewFlowing(t)
	ctx, control := t.Context(), s.Client.Op.As("anna")
	s.Put("w", "a b", shaper.StateQueued)
	patch := func(pairs ...string) operator.FlowPatch {
		t.Helper()
		var p operator.FlowPatch
		for i := 0; i < len(pairs); i += 2 {
			must.OK(t, p.Put(shaper.FlowSetting(pairs[i]), pairs[i+1]))
		}
		return p
	}
	text := func(own shaper.OwnFlow) string {
		t.Helper()
		pause := own.Pause
		own.Pause = nil
		out := must.Get(json.Marshal(own))(t)
		if pause != nil {
			return fmt.Sprintf("%s, paused by %s (%s)", out, pause.By, pause.Reason)
		}
		return string(out)
	}
	full := patch("rate", "20/s", "burst", "2", "capacity", "0", "max_in_flight", "7", "weight", "3", "url", "https://example.com/a")
	must.OK(t, errors.Join(full.PutHeaders(map[string]string{"X-A": "1"}), full.PutSecrets([]string{"whsec_x"})))
	own, err := control.Bucket("b").Flow("a b").Set(ctx, full)
	const all = `{"rate":"20/s","burst":2,"capacity":0,"max_in_flight":7,"weight":3,` +
		`"URL":"https://example.com/a","Headers":{"X-A":"1"},"Secrets":["whsec_x"]`
	if got := text(own); err != nil || !strings.HasPrefix(got, all) {
		t.Errorf("set: %s, %v", got, err)
	}
	must.OK(t, control.Bucket("b").Flow("a b").Pause(ctx, "two\nlines"))
	var less operator.FlowPatch
	must.OK(t, less.Clear(shaper.FlowRate, shaper.FlowCapacity, shaper.FlowHeaders))
	if own, err = control.Bucket("b").Flow("a b").Set(ctx, less); err != nil || own.Capacity != nil || own.Headers != nil || !own.Rate.IsZero() ||
		*own.Burst != 2 || own.Pause == nil || own.Pause.Reason != "two\nlines" || len(own.Secrets) != 1 {
		t.Errorf("cleared: %s, %v", text(own), err)
	}
	info, err := control.Bucket("b").Flow("a b").Info(ctx)
	if err != nil || info.Waiting != 1 || info.InFlight != 0 || *info.Own.Weight != 3 || !info.Own.Pause.Since.Equal(s.Now.Truncate(time.Microsecond)) {
		t.Errorf("flow %+v, %v", info, err)
	}
	if had, err := control.Bucket("b").Flow("a b").Reset(ctx); err != nil || !had {
		t.Errorf("deleted: %t, %v", had, err)
	}
	if was, err := control.Bucket("b").Flow("a b").Resume(ctx); err != nil || !was || s.TurnOf("a b") != 0 {
		t.Errorf("resumed: %t, %v; its turn is in %s", was, err, s.TurnOf("a b"))
	}
	if had, err := control.Bucket("b").Flow("a b").Reset(ctx); err != nil || had {
		t.Errorf("deleted again: %t, %v", had, err)
	}
	must.Equal(t, s.Redis.Exists(ctx, store.BucketKeys("b").FlowSettings()).Val(), 0, "settings are left")
}

// No operator fills Redis with flows that he makes up: max_flows of them have settings or a pause of their own, and one more is refused.
func TestSettingsOfFlowsAreBounded(t *testing.T) {
	t.Parallel()
	s := rig.NewFlowing(t) // max_flows is 5
	ctx, bucket := t.Context(), s.Client.Op.As("anna").Bucket("b")
	for i := range 5 {
		must.OK(t, bucket.Flow(fmt.Sprint("f", i)).Pause(ctx, ""))
	}
	var refused *operator.InvalidChangeError
	if err := bucket.Flow("f5").Pause(ctx, ""); !errors.As(err, &refused) || !strings.Contains(err.Error(), `"f5"`) || !strings.Contains(err.Error(), "flow.max_flows") {
		t.Errorf("a sixth flow is paused: %v", err)
	}
	must.OK(t, bucket.Flow("f4").Pause(ctx, "again"))
	_, err := bucket.Flow("f4").Resume(ctx)
	must.OK(t, err)
	must.OK(t, bucket.Flow("f5").Pause(ctx, ""))
}

// What does not fit changes nothing, and says why.
func TestControlOfFlowsRefuses(t *testing.T) {
	t.Parallel()
	s := rig.NewFlowing(t)
	ctx, control := t.Context(), s.Client.Op.As("anna")
	for value, want := range map[string]string{
		"rate 0/s": "rate: \"0/s\" would mean that the flow is paused: pause it", "rate -1/s": "rate: ", "rate 5 tokens/s": "rate: \"5 tokens/s\": only requests",
		"burst 0": "burst: 0: want 1 to", "weight 0": "weight: 0: want 1 to 1000", "weight 1001": "weight: 1001: want 1 to 1000",
		"capacity -1": "capacity: -1: want 0 to", "max_in_flight x": "max_in_flight: \"x\" is not a whole number", "url ftp://x/": "url: want an absolute http",
		"paused 1": "paused: is no setting of a flow: want rate, burst",
	} {
		var p operator.FlowPatch
		setting, text, _ := strings.Cut(value, " ")
		if err := p.Put(shaper.FlowSetting(setting), text); err == nil || !strings.HasPrefix(err.Error(), want) || !p.IsZero() {
			t.Errorf("%s: %v", value, err)
		}
	}
	var slow, empty operator.FlowPatch
	if empty.PutHeaders(map[string]string{"X-A": "1\n2"}) == nil || empty.PutHeaders(map[string]string{"X A": ""}) == nil ||
		empty.PutSecrets([]string{""}) == nil {
		t.Error("headers and secrets that cannot be were taken")
	}
	_, _ = slow.Put(shaper.FlowRate, "1/h"), slow.Put(shaper.FlowBurst, "10000")
	for _, err := range []error{
		func() error { _, err := control.Bucket("b").Flow("f").Set(ctx, slow); return err }(),
		func() error { _, err := control.Bucket("b").Flow("f").Set(ctx, empty); return err }(),
		control.Bucket("b").Flow(strings.Repeat("x", shaper.MaxFlowBytes+1)).Pause(ctx, ""),
		control.Bucket("b").Flow("\xff").Pause(ctx, ""),
		control.Bucket("b").Flow("f").Pause(ctx, strings.Repeat("x", operator.MaxReason+1)),
	} {
		if _, ok := errors.AsType[*operator.InvalidChangeError](err); !ok {
			t.Errorf("answered %v", err)
		}
	}
	if err := control.Bucket("nosuch").Flow("f").Pause(ctx, ""); !errors.Is(err, shaper.ErrUnknownBucket) {
		t.Errorf("paused a flow of no bucket: %v", err)
	}
	plain := rig.NewBench(t, rig.Bucket("b", 100))
	for _, err := range []error{
		plain.Client.Op.As("anna").Bucket("b").Flow("f").Pause(ctx, ""),
		func() error {
			_, err := plain.Client.Op.As("anna").Bucket("b").Flow("f").Purge(ctx, operator.PurgeOptions{})
			return err
		}(),
		func() error { _, _, err := plain.Client.Op.As("anna").Bucket("b").Flows(ctx, "", 10); return err }(),
	} {
		if !errors.Is(err, operator.ErrNoFlows) {
			t.Errorf("without flows: %v", err)
		}
	}
}

// Flows are listed, also those that have settings and no jobs; and purged, one or all.
func TestListAndPurgeFlows(t *testing.T) {
	t.Parallel()
	s := rig.NewFlowing(t)
	ctx, control := t.Context(), s.Client.Op.As("anna")
	for i := range 20 {
		s.Put(fmt.Sprint("w", i), fmt.Sprint("f", i%5), shaper.StateQueued)
	}
	s.Put("flying", "f0", shaper.StateInFlight)
	for _, flow := range []string{"f1", "quiet"} {
		must.OK(t, control.Bucket("b").Flow(flow).Pause(ctx, ""))
	}
	found := map[string]operator.FlowInfo{}
	for cursor, again := "", true; again; again = cursor != "" {
		var infos []operator.FlowInfo
		var err error
		if infos, cursor, err = control.Bucket("b").Flows(ctx, cursor, 2); err != nil {
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
		if _, _, err := control.Bucket("b").Flows(ctx, cursor, 2); err == nil {
			t.Errorf("cursor %q was taken", cursor)
		}
	}
	must.Equal(t, must.Get(control.Bucket("b").Flow("f3").Purge(ctx, operator.PurgeOptions{}))(t), (operator.Purged{Jobs: 4}), "purged")
	s.WantState(shaper.StateCancelled, "w3", "w18")
	s.WantState(shaper.StateQueued, "w4", "w0")
	must.Equal(t, must.Get(control.Bucket("b").Purge(ctx, operator.PurgeOptions{}))(t), (operator.Purged{Jobs: 16}), "purged")
	s.WantState(shaper.StateCancelled, "w0", "w1", "w2", "w4")
	s.WantState(shaper.StateInFlight, "flying")
	if info, err := control.Bucket("b").Flow("f0").Info(ctx); err != nil || info.Waiting != 0 || info.InFlight != 1 {
		t.Errorf("flow %+v, %v", info, err)
	}
}
