package shaper

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// The operator's view: pause, settings, lists and purges of groups, and flows that are named with theirs.
func TestControlOfGroups(t *testing.T) {
	t.Parallel()
	s := newGrouped(t)
	ctx, control := t.Context(), s.client.op.Control("anna")
	s.submitTo("a", "x", "ax0", "ax1")
	s.submitTo("a", "y", "ay0")
	s.submitTo("a*", "x", "star0")
	s.submitTo("", "x", "none0")
	var patch FlowPatch
	for setting, value := range map[FlowSetting]string{FlowRate: "20/s", FlowBurst: "2", FlowCapacity: "9", FlowMaxInFlight: "7", FlowWeight: "3"} {
		if err := patch.Put(setting, value); err != nil {
			t.Fatal(err)
		}
	}
	own, err := control.SetGroup(ctx, "b", "a", patch)
	if err != nil || own.Rate.String() != "20/s" || *own.Burst != 2 || *own.Capacity != 9 || *own.MaxInFlight != 7 || *own.Weight != 3 {
		t.Errorf("set %+v, %v", own, err)
	}
	if err := control.PauseGroup(ctx, "b", "a", "a leak"); err != nil {
		t.Fatal(err)
	}
	if err := control.InGroup("a").PauseFlow(ctx, "b", "x", "too"); err != nil {
		t.Fatal(err)
	}
	job, err := s.client.Job(ctx, "b", "ax0")
	if err != nil || fmt.Sprint(job.Holds()) != "[group-paused flow-paused pace]" || !strings.HasPrefix(job.Why(), `group "a" is paused since `) || !job.Earliest().IsZero() {
		t.Errorf("job %+v, %v: %v, %s", job, err, job.Holds(), job.Why())
	}
	if info, err := control.Group(ctx, "b", "a"); err != nil || info.Group != "a" || info.Waiting != 3 || info.Own.Pause == nil || info.Own.Pause.By != "anna" || info.Turn.IsZero() {
		t.Errorf("group %+v, %v", info, err)
	}
	groups := map[string]GroupInfo{}
	for cursor, again := "", true; again; again = cursor != "" {
		var infos []GroupInfo
		if infos, cursor, err = control.Groups(ctx, "b", cursor, 10); err != nil {
			t.Fatal(err)
		}
		for _, info := range infos {
			groups[info.Group] = info
		}
	}
	if len(groups) != 3 || groups["a*"].Waiting != 1 || groups[""].Waiting != 1 || groups["a"].Own.Weight == nil {
		t.Errorf("groups %+v", groups)
	}
	listed := func(c *Control) (names []string) {
		t.Helper()
		for cursor, again := "", true; again; again = cursor != "" {
			var infos []FlowInfo
			if infos, cursor, err = c.Flows(ctx, "b", cursor, 10); err != nil {
				t.Fatal(err)
			}
			for _, info := range infos {
				names = append(names, fmt.Sprintf("%s/%s:%d", info.Group, info.Flow, info.Waiting))
			}
		}
		return names
	}
	if all, of := listed(control), listed(control.InGroup("a*")); len(all) != 4 || fmt.Sprint(of) != "[a*/x:1]" {
		t.Errorf("flows %v, of one group %v", all, of)
	}
	if info, err := control.InGroup("a").Flow(ctx, "b", "x"); err != nil || info.Group != "a" || info.Flow != "x" || info.Waiting != 2 || info.Own.Pause == nil {
		t.Errorf("flow %+v, %v", info, err)
	}
	if was, err := control.ResumeGroup(ctx, "b", "a"); err != nil || !was {
		t.Errorf("resumed: %t, %v", was, err)
	}
	for _, want := range []bool{true, false} {
		if had, err := control.DeleteGroupSettings(ctx, "b", "a"); err != nil || had != want {
			t.Errorf("deleted: %t, %v", had, err)
		}
	}
	if n := s.redis.Exists(ctx, bucketKeys("b").groupSettings()).Val(); n != 0 {
		t.Error("settings of groups are left")
	}
	if purged, err := control.InGroup("a").PurgeFlow(ctx, "b", "y", PurgeOptions{}); err != nil || purged.Jobs != 1 {
		t.Errorf("purged %+v, %v", purged, err)
	}
	if purged, err := control.PurgeGroup(ctx, "b", "a", PurgeOptions{}); err != nil || purged.Jobs != 2 {
		t.Errorf("purged %+v, %v", purged, err)
	}
	s.wantState(StateCancelled, "ax0", "ax1", "ay0")
	s.wantState(StateQueued, "star0", "none0")
	if purged, err := control.Purge(ctx, "b", PurgeOptions{}); err != nil || purged.Jobs != 2 {
		t.Errorf("purged %+v, %v", purged, err)
	}
}

// What does not fit changes nothing, and says why.
func TestControlOfGroupsRefuses(t *testing.T) {
	t.Parallel()
	s := newGrouped(t)
	ctx, control := t.Context(), s.client.op.Control("anna")
	var secrets, slow FlowPatch
	if err := errors.Join(secrets.PutSecrets([]string{"s"}), slow.Put(FlowRate, "1/h"), slow.Put(FlowBurst, "10000")); err != nil {
		t.Fatal(err)
	}
	set := func(patch FlowPatch) error { _, err := control.SetGroup(ctx, "b", "a", patch); return err }
	for _, err := range []error{
		set(secrets), set(slow), set(FlowPatch{}), control.PauseGroup(ctx, "b", "\xff", ""),
		control.PauseGroup(ctx, "b", "a", strings.Repeat("x", MaxReason+1)), control.InGroup("\xff").PauseFlow(ctx, "b", "a", ""),
	} {
		if _, ok := errors.AsType[*InvalidChangeError](err); !ok {
			t.Errorf("answered %v", err)
		}
	}
	if err := control.PauseFlow(ctx, "b", "x", ""); !errors.Is(err, ErrGroupNeeded) {
		t.Errorf("a flow without its group: %v", err)
	}
	if n := s.redis.Exists(ctx, bucketKeys("b").groupSettings(), bucketKeys("b").flowSettings()).Val(); n != 0 {
		t.Error("something was changed")
	}
	for _, plain := range []*bench{newBench(t, testBucket("b", 100)), newFlowing(t)} {
		control := plain.client.op.Control("anna")
		for _, err := range []error{
			control.PauseGroup(ctx, "b", "a", ""),
			func() error { _, _, err := control.Groups(ctx, "b", "", 10); return err }(),
			func() error { _, err := control.PurgeGroup(ctx, "b", "a", PurgeOptions{}); return err }(),
		} {
			if !errors.Is(err, ErrNoGroups) {
				t.Errorf("without groups: %v", err)
			}
		}
	}
	if err := newFlowing(t).client.op.Control("anna").InGroup("a").PauseFlow(ctx, "b", "x", ""); !errors.Is(err, ErrNoGroups) {
		t.Errorf("a flow of a group where there are none: %v", err)
	}
}
