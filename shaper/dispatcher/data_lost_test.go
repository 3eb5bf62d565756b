package dispatcher

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/audit"
	"github.com/tundish-io/tundish/shaper/fleet"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// After a loss of all data the fleet and the audit say so: the audit is lost with the data, and would be empty. The fleet does for a day,
// also when all dispatchers have been restarted.
func TestLostDataIsReported(t *testing.T) {
	t.Parallel()
	worker := shaper.WorkerFunc(func(context.Context, *shaper.Attempt) shaper.Outcome { return shaper.Done(200) })
	buckets := []shaper.Bucket{rig.Bucket("b", 20)}
	inBubble(t, worker, buckets, func(l *loops) {
		isReported := func() bool {
			seen := must.Get(fleet.NewView(l.redis, rig.Patience).Look(l.t.Context()))(l.t)
			lines := fleet.Notices(seen.Processes)
			return len(lines) == 1 && strings.HasPrefix(lines[0], "Redis lost data") && strings.Contains(lines[0], "1 bucket were gone (b)")
		}
		run := func(while func()) {
			var err error
			config := Config{Redis: l.redis, Buckets: buckets, Workers: rig.Workers(buckets, worker), Program: "dispatcher", Registerer: prometheus.NewRegistry()}
			if l.d, err = New(config); err != nil {
				l.t.Fatal(err)
			}
			ended := make(chan struct{})
			ctx, stop := context.WithCancel(l.t.Context())
			go func() {
				defer close(ended)
				if err := l.d.Run(ctx); err != nil {
					l.t.Error(err)
				}
			}()
			while()
			stop()
			<-ended
		}
		const look = 3 * store.WatchEvery // within which it has looked at what is in force
		run(func() {
			<-time.After(look)
			must.OK(l.t, l.redis.FlushAll(l.t.Context()).Err())
			if isReported() {
				l.t.Error("reported before it was seen")
			}
			<-time.After(look)
			if !isReported() {
				l.t.Error("no dispatcher reports it")
			}
		})
		records, _, err := audit.NewLog(l.redis, rig.Patience).Records(l.t.Context(), "", "", 10)
		if err != nil || len(records) != 1 || records[0].Operation != "data_lost" || records[0].Outcome != audit.Done {
			l.t.Errorf("the audit has %+v, %v", records, err)
		}
		reported := func(want bool) func() {
			return func() {
				<-time.After(look)
				must.Equal(l.t, isReported(), want, "a dispatcher that started later reports it: %t", !want)
			}
		}
		run(reported(true))
		<-time.After(24 * time.Hour)
		run(reported(false))
	})
}
