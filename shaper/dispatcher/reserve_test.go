package dispatcher

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
)

// losing is a hook that loses the answer to the next claim.
type losing struct{ next atomic.Bool }

func (l *losing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *losing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if lua.ScriptOf(cmd) == lua.Claim && err == nil && l.next.Swap(false) {
			err = errors.New("the answer is lost")
			cmd.SetErr(err)
		}
		return err
	}
}

func (l *losing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// The answer of a claim is lost: the same claim is asked again, although nobody has a turn now, and answers its jobs.
func TestLostClaimOfGroups(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSteppedBucket(t, shaper.WorkerFunc(func(context.Context, *shaper.Attempt) shaper.Outcome { return shaper.Done(200) }), rig.Grouped("b", 100))
		r := s.bucketLoop()
		enqueue := func(group string, jobs int) {
			for range jobs {
				must.Get(s.Client.Enqueue(t.Context(), shaper.Job{Bucket: "b", Group: group, Flow: "f", Payload: []byte("{}")}))(t)
			}
		}
		enqueue("other", 1)
		s.claim(r, "zeroth") // Redis knows the script
		enqueue("g", 50)
		lose := &losing{}
		s.Redis.AddHook(lose)
		lose.next.Store(true)
		if _, err := r.claims.claim(t.Context(), "first", 10); err == nil {
			t.Fatal("the answer was not lost")
		}
		s.claim(r, "first")
		leases, err := s.Redis.ZCard(t.Context(), r.Keys.Leases()).Result()
		if err != nil || leases < 2 || len(r.held.jobs) != int(leases) { // none has come to its slot yet
			t.Errorf("%d leases, of which the process knows %d: %v", leases, len(r.held.jobs), err)
		}
	})
}

// In a bucket with flows a claim takes no more jobs than it asked turns for, though more workers are free when it is sent:
// else some flow has a second turn before others have one. With groups it is sent two round trips after it was asked how many.
func TestClaimsAsManyAsItAskedTurnsFor(t *testing.T) {
	t.Parallel()
	flows := rig.Grouped("b", 100)
	flows.Group = nil
	for name, c := range map[string]struct {
		bucket shaper.Bucket
		want   func(held int) bool
	}{
		"flows":  {flows, func(held int) bool { return held == 2 }},
		"groups": {rig.Grouped("b", 100), func(held int) bool { return held > 2 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				worker := rig.NewWaiting() // a job is held until the claim is looked at
				s := newSteppedBucket(t, worker, c.bucket)
				for i := range 9 {
					job := shaper.Job{Bucket: "b", Flow: []string{"f", "g", "h"}[i%3], Payload: []byte("{}")}
					if c.bucket.Group != nil {
						job.Group = "group"
					}
					must.Get(s.Client.Enqueue(t.Context(), job))(t)
				}
				r := s.bucketLoop()
				_, err := r.claims.claim(t.Context(), "first", 2)
				held := len(r.held.jobs)
				for range held {
					worker.End <- shaper.Done(200)
				}
				must.OK(t, err)
				if !c.want(held) {
					t.Errorf("a claim that asked turns for two jobs, with %d workers free when it was sent, got %d", r.deliveries.concurrency, held)
				}
			})
		})
	}
}
