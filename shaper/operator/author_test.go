package operator_test

import (
	"bytes"
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
		{"redrive", func() { do(b.Dead().Redrive(ctx, "dead1")) }, "jobs=1"},
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
