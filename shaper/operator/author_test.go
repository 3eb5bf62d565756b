package operator_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/operator"
)

// Every change is logged with its author, and counted.
func TestChangesHaveAnAuthor(t *testing.T) {
	t.Parallel()
	s := rig.NewFlowing(t)
	var text bytes.Buffer
	registry := prometheus.NewRegistry()
	op := must.Get(operator.New(operator.Config{
		Timeout: rig.Patience,
		Redis:   s.Redis, Buckets: []shaper.Bucket{s.Bucket}, Logger: slog.New(slog.NewTextHandler(&text, nil)), Registerer: registry,
	}))(t)
	ctx, b := t.Context(), op.As("anna").Bucket("b")
	s.Put("waits", "f", shaper.StateQueued)
	s.Put("late", "f", shaper.StateQueued)
	for _, id := range []string{"dead1", "dead2", "dead3"} {
		s.Put(id, "f", shaper.StateDead)
	}
	do := func(_ any, err error) {
		t.Helper()
		must.OK(t, err)
	}
	for _, c := range []struct {
		action string
		change func()
		want   string
	}{
		{"pause", func() { do(nil, b.Flow("f").Pause(ctx, "a leak")) }, "flow=f reason=\"a leak\""},
		{"resume", func() { do(b.Flow("f").Resume(ctx)) }, "flow=f"},
		{"release", func() { do(b.Flow("f").Release(ctx)) }, "flow=f before=\"nothing to release\" after=released"},
		{"release", func() { do(b.ReleaseFlows(ctx)) }, "flows=0"},
		{"release", func() { do(b.Release(ctx)) }, "before=\"nothing to release\" after=released"},
		{"cancel", func() { do(b.Job("waits").Cancel(ctx)) }, "job=waits"},
		{"redrive", func() { do(b.Dead().Redrive(ctx, "dead1")) }, "jobs=1 job=dead1"},
		{"drop", func() { do(b.Dead().Drop(ctx, "dead2")) }, "job=dead2"},
		{"drop", func() { do(b.Dead().DropAll(ctx)) }, "jobs=1"},
		{"purge", func() { do(b.Flow("f").Purge(ctx, operator.PurgeOptions{})) }, "flow=f jobs=2"},
	} {
		text.Reset()
		c.change()
		if got := text.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "bucket=b action="+c.action+" by=anna "+c.want) {
			t.Errorf("%s is logged as %q", c.action, got)
		}
	}
	must.Equal(t, rig.Scrape(t, registry, "tundish_control")["tundish_control_actions_total{action=drop,bucket=b}"], 2, "drops are counted")
	// What changed nothing is no change.
	text.Reset()
	do(b.Dead().RedriveAll(ctx, 10))
	do(b.Dead().DropAll(ctx))
	if text.Len() > 0 {
		t.Errorf("logged %s", &text)
	}
}

// Without an author an operator reads, and changes nothing.
func TestChangesNeedAnAuthor(t *testing.T) {
	t.Parallel()
	s := rig.NewFlowing(t)
	op, ctx := s.Client.Op, t.Context()
	s.Put("waits", "f", shaper.StateQueued)
	s.Put("dead", "f", shaper.StateDead)
	must.OK(t, op.As("anna").Bucket("b").Flow("f").Pause(ctx, "a leak"))
	var patch operator.FlowPatch
	must.OK(t, patch.Put(shaper.FlowWeight, "3"))
	read := func() string {
		flow := must.Get(op.Bucket("b").Flow("f").Info(ctx))(t)
		info := must.Get(op.Bucket("b").Info(ctx))(t)
		return fmt.Sprint(flow.Waiting, flow.Own.Pause != nil, flow.Own.Weight == nil, info.Pause == nil, len(info.Overrides), info.Dead)
	}
	before := read()
	only := func(_ any, err error) error { return err }
	b := op.Bucket("b")
	f, dead := b.Flow("f"), b.Dead()
	for what, err := range map[string]error{
		"pause a bucket": b.Pause(ctx, ""), "resume a bucket": only(b.Resume(ctx)), "set a bucket": only(b.Set(ctx, rig.MustPatch(t, "burst", "7"))), "reset a bucket": only(b.Reset(ctx)),
		"release a bucket": only(b.Release(ctx)), "purge a bucket": only(b.Purge(ctx, operator.PurgeOptions{})), "retry jobs of a bucket": only(b.RetryNow(ctx)),
		"drain a bucket": only(b.Drain(ctx, operator.DrainOptions{})), "stop a drain": only(b.StopDrain(ctx)), "notify hooks": b.NotifyChanged(ctx, "test"),
		"set flows": only(b.PutFlows(ctx, []operator.FlowChange{{Flow: "f", Patch: patch}})), "pause a flow": f.Pause(ctx, ""), "resume a flow": only(f.Resume(ctx)),
		"set a flow": only(f.Set(ctx, patch)), "reset a flow": only(f.Reset(ctx)), "release a flow": only(f.Release(ctx)), "purge a flow": only(f.Purge(ctx, operator.PurgeOptions{})),
		"enable a flow": only(f.Enable(ctx)), "retry jobs of a flow": only(f.RetryNow(ctx)), "remove a flow": only(f.Remove(ctx, "", false)),
		"cancel a job": only(b.Job("waits").Cancel(ctx)), "redrive": only(dead.Redrive(ctx, "dead")), "redrive all": only(dead.RedriveAll(ctx, 10)),
		"redrive what is found": only(dead.RedriveFound(ctx, operator.DeadFilter{}, "", false)), "drop": only(dead.Drop(ctx, "dead")), "drop all": only(dead.DropAll(ctx)),
		"drop what is found": only(dead.DropFound(ctx, operator.DeadFilter{}, "", false)), "reset a pool": only(op.Pool("p").Reset(ctx)), "release a pool": only(op.Pool("p").Release(ctx)),
		"set a schedule": only(op.Schedule("s").Set(ctx, "b", shaper.Schedule{Cron: "@daily", Job: shaper.ScheduledJob{Flow: "f"}})),
	} {
		if !errors.Is(err, operator.ErrNoAuthor) {
			t.Errorf("%s: error %v, want %v", what, err, operator.ErrNoAuthor)
		}
	}
	must.Equal(t, read(), before, "the state")
	must.Equal(t, must.Get(dead.RedriveFound(ctx, operator.DeadFilter{}, "", true))(t).Matched, 1, "dead letters, in a dry run")
}
