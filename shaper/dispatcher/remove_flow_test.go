package dispatcher

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/operator"
)

// A removal drops all that is kept of a flow and nothing of others, also if it is interrupted after each of its calls and begun again. What is
// in flight ends as it would have. A dry run counts the same and changes nothing.
func TestRemoveFlow(t *testing.T) {
	t.Parallel()
	for _, levels := range []int{codec.LevelsFlows, codec.LevelsGroups} {
		for _, interrupted := range []bool{false, true} {
			t.Run(fmt.Sprint(levels, interrupted), func(t *testing.T) {
				t.Parallel()
				b := rig.Flowing("b", shaper.FlowKeyJob)
				if levels == codec.LevelsGroups {
					b = rig.Grouped("b", 1000)
				}
				b.Rate, b.Results = rig.PerSecond(1000), shaper.DefaultResultSettings()
				b.Results.Retention = time.Hour
				ended := make(chan string, 100)
				worker := shaper.WorkerFunc(func(ctx context.Context, a *shaper.Attempt) shaper.Outcome {
					switch string(a.Payload) {
					case "dead":
						return shaper.Dead("permanent", "they said so")
					case "slow":
						sleep(ctx, 20*time.Second)
						ended <- a.Flow
					}
					outcome := shaper.Done(200)
					outcome.Answer = &shaper.Answer{Status: 200}
					return outcome
				})
				inBubble(t, worker, []shaper.Bucket{b}, func(l *loops) { removeOne(l, levels, interrupted, ended) })
			})
		}
	}
}

func removeOne(l *loops, levels int, interrupted bool, ended chan string) {
	const done, died, waits = 250, 30, 20
	put := func(n int, payload string, delay time.Duration) {
		l.t.Helper()
		for _, flow := range []string{"gone", "stays"} {
			jobs := make([]shaper.Job, n)
			for i := range jobs {
				if jobs[i] = (shaper.Job{Bucket: "b", Flow: flow, Payload: []byte(payload), Delay: delay}); levels == codec.LevelsGroups {
					jobs[i].Group = "g"
				}
			}
			l.enqueue(jobs...)
		}
	}
	ctx := l.t.Context()
	running, stop := context.WithCancel(ctx)
	stopped := make(chan error)
	go func() { stopped <- l.d.Run(running) }()
	put(done, "x", 0)
	put(died, "dead", 0)
	<-time.After(5 * time.Second)
	put(1, "slow", 0)
	<-time.After(2 * time.Second)
	op := l.client.Op.As("anna").Bucket("b")
	flow := func(name string) operator.Flow {
		if levels == codec.LevelsGroups {
			return op.Group("g").Flow(name)
		}
		return op.Flow(name)
	}
	for _, name := range []string{"gone", "stays"} {
		must.OK(l.t, flow(name).Pause(ctx, "they left"))
	}
	put(waits, "x", 0)
	put(3, "x", time.Hour)
	remove := func(dryRun, again bool) (sum operator.FlowRemoval) {
		l.t.Helper()
		for range 100 {
			part, err := flow("gone").Remove(ctx, sum.Next, dryRun)
			must.OK(l.t, err)
			if sum.Add(part); sum.Next == "" {
				return sum
			}
			if again {
				for cursor := ""; cursor != sum.Next; cursor = part.Next { // the next process begins again, and gets as far
					if part, err = flow("gone").Remove(ctx, cursor, false); err != nil {
						l.t.Fatal(err)
					}
					part.Own, part.InFlight = nil, 0
					next := sum.Next
					sum.Add(part)
					sum.Next = next
				}
			}
		}
		l.t.Fatal("the removal has no end")
		return sum
	}
	wants := func(what string, r operator.FlowRemoval, left int64) {
		l.t.Helper()
		if r.Waiting != waits+3 || r.Dead != died || r.Results != done || !slices.Equal(r.Own, []string{"pause"}) || r.InFlight != left {
			l.t.Errorf("%s: %+v", what, r)
		}
	}
	wants("a dry run", remove(true, false), 1)
	wants("the removal", remove(false, interrupted), 1)
	if r := remove(false, false); r.Waiting+int64(r.Dead+r.Results+len(r.Own)) != 0 {
		l.t.Errorf("again: %+v", r)
	}
	<-time.After(30 * time.Second)
	must.Equal(l.t, len(ended), 2, "of 2 jobs in flight ended")
	other, err := flow("stays").Info(ctx)
	info := l.client.Op.Bucket("b")
	of, err2 := info.Info(ctx)
	results, err3 := l.redis.HLen(ctx, store.BucketKeys("b").Results()).Result()
	if err != nil || err2 != nil || err3 != nil || other.Waiting != waits+3 || other.Own.Pause == nil || of.Dead != died || results != done+2 || of.InFlight != 0 ||
		of.Unfinished+of.Scheduled != waits+3 {
		l.t.Errorf("of others: %d wait, pause %+v, %d dead, %d results, bucket %+v; %v %v %v", other.Waiting, other.Own.Pause, of.Dead, results, of.BucketNumbers, err, err2, err3)
	}
	put(1, "x", 0)
	<-time.After(5 * time.Second)
	if gone, err := flow("gone").Info(ctx); err != nil || gone.Waiting != 0 {
		l.t.Errorf("a new job of the flow still waits: %+v, %v", gone, err)
	}
	stop()
	if err := <-stopped; err != nil {
		l.t.Error(err)
	}
}
