package operator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/operator"
)

// The operator's view: pause, settings, lists and purges of groups, and flows that are named with theirs.
func TestControlOfGroups(t *testing.T) {
	t.Parallel()
	s := rig.NewGrouped(t)
	ctx, control := t.Context(), s.Client.Op.As("anna")
	s.SubmitTo("a", "x", "ax0", "ax1")
	s.SubmitTo("a", "y", "ay0")
	s.SubmitTo("a*", "x", "star0")
	s.SubmitTo("", "x", "none0")
	var patch operator.FlowPatch
	for setting, value := range map[shaper.FlowSetting]string{shaper.FlowRate: "20/s", shaper.FlowBurst: "2", shaper.FlowCapacity: "9", shaper.FlowMaxInFlight: "7", shaper.FlowWeight: "3"} {
		must.OK(t, patch.Put(setting, value))
	}
	own, err := control.Bucket("b").Group("a").Set(ctx, patch)
	if err != nil || own.Rate.String() != "20/s" || *own.Burst != 2 || *own.Capacity != 9 || *own.MaxInFlight != 7 || *own.Weight != 3 {
		t.Errorf("set %+v, %v", own, err)
	}
	must.OK(t, control.Bucket("b").Group("a").Pause(ctx, "a leak"))
	must.OK(t, control.Bucket("b").Group("a").Flow("x").Pause(ctx, "too"))
	job, err := s.Client.Job(ctx, "b", "ax0")
	if err != nil || fmt.Sprint(job.BlockedBy()) != "[group-paused flow-paused pace]" || !strings.HasPrefix(job.Why(), `group "a" is paused since `) || !job.Earliest().IsZero() {
		t.Errorf("job %+v, %v: %v, %s", job, err, job.BlockedBy(), job.Why())
	}
	if info, err := control.Bucket("b").Group("a").Info(ctx); err != nil || info.Group != "a" || info.Waiting != 3 || info.Own.Pause == nil || info.Own.Pause.By != "anna" || info.Turn.IsZero() {
		t.Errorf("group %+v, %v", info, err)
	}
	groups := map[string]operator.GroupInfo{}
	for cursor, again := "", true; again; again = cursor != "" {
		var infos []operator.GroupInfo
		if infos, cursor, err = control.Bucket("b").Groups(ctx, cursor, 10); err != nil {
			t.Fatal(err)
		}
		for _, info := range infos {
			groups[info.Group] = info
		}
	}
	if len(groups) != 3 || groups["a*"].Waiting != 1 || groups[""].Waiting != 1 || groups["a"].Own.Weight == nil {
		t.Errorf("groups %+v", groups)
	}
	listed := func(flows func(context.Context, string, int) ([]operator.FlowInfo, string, error)) (names []string) {
		t.Helper()
		for cursor, again := "", true; again; again = cursor != "" {
			var infos []operator.FlowInfo
			if infos, cursor, err = flows(ctx, cursor, 10); err != nil {
				t.Fatal(err)
			}
			for _, info := range infos {
				names = append(names, fmt.Sprintf("%s/%s:%d", info.Group, info.Flow, info.Waiting))
			}
		}
		return names
	}
	if all, of := listed(s.Client.Op.Bucket("b").Flows), listed(s.Client.Op.Bucket("b").Group("a*").Flows); len(all) != 4 || fmt.Sprint(of) != "[a*/x:1]" {
		t.Errorf("flows %v, of one group %v", all, of)
	}
	if info, err := control.Bucket("b").Group("a").Flow("x").Info(ctx); err != nil || info.Group != "a" || info.Flow != "x" || info.Waiting != 2 || info.Own.Pause == nil {
		t.Errorf("flow %+v, %v", info, err)
	}
	if was, err := control.Bucket("b").Group("a").Resume(ctx); err != nil || !was {
		t.Errorf("resumed: %t, %v", was, err)
	}
	for _, want := range []bool{true, false} {
		must.Equal(t, must.Get(control.Bucket("b").Group("a").Reset(ctx))(t), want, "deleted")
	}
	must.Equal(t, s.Redis.Exists(ctx, store.BucketKeys("b").GroupSettings()).Val(), 0, "settings of groups are left")
	if purged, err := control.Bucket("b").Group("a").Flow("y").Purge(ctx, operator.PurgeOptions{}); err != nil || purged.Jobs != 1 {
		t.Errorf("purged %+v, %v", purged, err)
	}
	if purged, err := control.Bucket("b").Group("a").Purge(ctx, operator.PurgeOptions{}); err != nil || purged.Jobs != 2 {
		t.Errorf("purged %+v, %v", purged, err)
	}
	s.WantState(shaper.StateCancelled, "ax0", "ax1", "ay0")
	s.WantState(shaper.StateQueued, "star0", "none0")
	if purged, err := control.Bucket("b").Purge(ctx, operator.PurgeOptions{}); err != nil || purged.Jobs != 2 {
		t.Errorf("purged %+v, %v", purged, err)
	}
}

// What does not fit changes nothing, and says why.
func TestControlOfGroupsRefuses(t *testing.T) {
	t.Parallel()
	s := rig.NewGrouped(t)
	ctx, control := t.Context(), s.Client.Op.As("anna")
	var secrets, slow operator.FlowPatch
	must.OK(t, errors.Join(secrets.PutSecrets([]string{"s"}), slow.Put(shaper.FlowRate, "1/h"), slow.Put(shaper.FlowBurst, "10000")))
	set := func(patch operator.FlowPatch) error {
		_, err := control.Bucket("b").Group("a").Set(ctx, patch)
		return err
	}
	for _, err := range []error{
		set(secrets), set(slow), set(operator.FlowPatch{}), control.Bucket("b").Group("\xff").Pause(ctx, ""),
		control.Bucket("b").Group("a").Pause(ctx, strings.Repeat("x", operator.MaxReason+1)), control.Bucket("b").Group("\xff").Flow("a").Pause(ctx, ""),
	} {
		if _, ok := errors.AsType[*operator.InvalidChangeError](err); !ok {
			t.Errorf("answered %v", err)
		}
	}
	if err := control.Bucket("b").Flow("x").Pause(ctx, ""); !errors.Is(err, operator.ErrGroupNeeded) {
		t.Errorf("a flow without its group: %v", err)
	}
	must.Equal(t, s.Redis.Exists(ctx, store.BucketKeys("b").GroupSettings(), store.BucketKeys("b").FlowSettings()).Val(), 0, "something was changed")
	for _, plain := range []*rig.Bench{rig.NewBench(t, rig.Bucket("b", 100)), rig.NewFlowing(t)} {
		control := plain.Client.Op.As("anna")
		for _, err := range []error{
			control.Bucket("b").Group("a").Pause(ctx, ""),
			func() error { _, _, err := control.Bucket("b").Groups(ctx, "", 10); return err }(),
			func() error { _, err := control.Bucket("b").Group("a").Purge(ctx, operator.PurgeOptions{}); return err }(),
		} {
			if !errors.Is(err, operator.ErrNoGroups) {
				t.Errorf("without groups: %v", err)
			}
		}
	}
	if err := rig.NewFlowing(t).Client.Op.As("anna").Bucket("b").Group("a").Flow("x").Pause(ctx, ""); !errors.Is(err, operator.ErrNoGroups) {
		t.Errorf("a flow of a group where there are none: %v", err)
	}
}
