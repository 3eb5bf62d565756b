package operator_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/fleet"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/tundishtest"
)

// A bucket without a dispatcher says so: before one starts, after one stops, after one is killed, and where only a producer has the bucket.
func TestCollectorOfDispatchers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn := tundishtest.Open(t).Redis()
		buckets := []shaper.Bucket{rig.Bucket("served", 1), rig.Bucket("forgotten", 1)}
		op := must.Get(operator.New(operator.Config{Timeout: rig.Patience, Redis: conn, Buckets: buckets}))(t)
		registry := rig.RegistryOf(operator.NewCollector(t.Context(), op))
		want := func(when string, served float64) {
			t.Helper()
			got := rig.Scrape(t, registry, "tundish_bucket_dispatchers")
			for series, want := range map[string]float64{"{bucket=served}": served, "{bucket=forgotten}": 0} {
				if value, ok := got["tundish_bucket_dispatchers"+series]; !ok || value != want {
					t.Errorf("%s: %s is %v (%t), want %v", when, series, value, ok, want)
				}
			}
		}
		start := func(works bool, away *atomic.Bool, names ...string) (stop func()) {
			m := must.Get(fleet.NewMember(fleet.Config{
				Redis: silenced{conn, away}, Registerer: prometheus.NewRegistry(), Buckets: func() []string { return names },
				About: func() fleet.About { return fleet.About{Name: "dispatcher", Works: works} },
			}))(t)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				m.Run(ctx)
			}()
			return func() { cancel(); <-ended }
		}
		pass := func(d time.Duration) { <-time.After(d) } // takes no time in a bubble
		known := fleet.HeartbeatInterval + time.Second

		var killed atomic.Bool
		want("at first", 0)
		defer start(false, new(atomic.Bool), "served", "forgotten")() // a producer
		stop, kill := start(true, new(atomic.Bool), "served"), start(true, &killed, "served")
		pass(known)
		want("with two dispatchers", 2)
		stop()
		pass(known)
		want("after one has stopped", 1)
		killed.Store(true)
		kill()
		pass(fleet.Silence + known)
		want("after one was killed", 0)
	})
}
