package shaper

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/lua"
)

// losing is a hook that loses the answer to the next claim in a pipeline, and says when a claim that is sent alone is answered.
type losing struct {
	next     atomic.Bool
	answered chan struct{}
}

func (l *losing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *losing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if args := cmd.Args(); len(args) > 1 && args[1] == lua.Claim.SHA() && l.answered != nil {
			l.answered <- struct{}{}
		}
		return err
	}
}

func (l *losing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if args := cmds[0].Args(); len(args) > 1 && args[1] == lua.Claim.SHA() && l.next.Swap(false) {
			err = errors.New("the answer is lost")
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
		}
		return err
	}
}

// farGroup is a drain that is far from Redis, in a bucket with more jobs of a group than a claim takes, and
// that has no time to ask whose turn it is after its claim.
func farGroup(t *testing.T) (*stepped, *drain) {
	t.Helper()
	s := newSteppedBucket(t, WorkerFunc(func(context.Context, *Attempt) Outcome { return Done(200) }), grouped("b", 100))
	for range 50 {
		if _, err := s.client.Enqueue(t.Context(), Job{Bucket: "b", Group: "g", Flow: "f", Payload: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
	}
	r := s.drain()
	for range rttSamples {
		r.clock.rtts[r.clock.rttCount] = 50 * time.Millisecond
		r.clock.rttCount++
	}
	r.foreseen = &foreseen{until: time.Now().Add(time.Minute)}
	r.giveBack(t.Context()) // a claim, so that Redis knows the script
	r.pressed = true
	return s, r
}

// turnOf is when the group is next on the calendar, from now on.
func (s *stepped) turnOfG(r *drain) time.Duration {
	s.t.Helper()
	turn, err := s.redis.ZScore(s.t.Context(), r.keys.calendar(), "g").Result()
	if err != nil {
		s.t.Fatal(err)
	}
	return time.UnixMicro(int64(turn)).Sub(s.now)
}

// What a claim reserved for the next one is given back when that does not come soon.
func TestForeseenIsGivenBack(t *testing.T) {
	t.Parallel()
	for name, idle := range map[string]func(t *testing.T, s *stepped, r *drain){
		"no worker is free": func(t *testing.T, s *stepped, r *drain) {
			hook := &losing{answered: make(chan struct{}, 10)}
			s.redis.AddHook(hook)
			r.deliveries.Wait()
			r.mu.Lock()
			occupied := r.concurrency - r.running
			r.running += occupied
			r.mu.Unlock()
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); r.loop(ctx) }()
			select {
			case <-hook.answered:
			case <-time.After(10 * time.Second):
				t.Error("nothing is given back")
			}
			if turn := s.turnOfG(r); turn > maxHorizon {
				t.Errorf("the group's turn comes in %s", turn)
			}
			stop()
			<-ended
			r.mu.Lock()
			r.running -= occupied
			r.mu.Unlock()
		},
		"the process ends": func(_ *testing.T, _ *stepped, r *drain) {
			ctx, stop := context.WithCancel(context.Background())
			stop()
			r.pause = time.Now().Add(time.Hour)
			r.loop(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, r := farGroup(t)
				s.claim(r, "first")
				if r.foreseen == nil || s.turnOfG(r) < reservation/2 {
					t.Fatalf("foreseen is %v, the group's turn comes in %s", r.foreseen, s.turnOfG(r))
				}
				idle(t, s, r)
				if turn := s.turnOfG(r); r.foreseen != nil || turn > maxHorizon {
					t.Errorf("foreseen is %v, the group's turn comes in %s", r.foreseen, turn)
				}
			})
		})
	}
}

// The answer of a claim is lost, with what it foresaw: the same claim is asked again, although no group that
// is not reserved is left, and answers its jobs.
func TestLostForeseen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, r := farGroup(t)
		lose := &losing{}
		s.redis.AddHook(lose)
		lose.next.Store(true)
		if _, err := r.claim(t.Context(), "first", 10); err == nil {
			t.Fatal("the answer was not lost")
		}
		if turn := s.turnOfG(r); turn < reservation/2 {
			t.Fatalf("the group's turn comes in %s", turn)
		}
		s.claim(r, "first")
		leases, err := s.redis.ZCard(t.Context(), r.keys.leases()).Result()
		if err != nil || leases == 0 || len(r.heldNow()) != int(leases) { // none has come to its slot yet
			t.Errorf("%d leases, of which the process knows %d: %v", leases, len(r.heldNow()), err)
		}
	})
}

// What was foreseen longer ago than it is reserved may have been told to others.
func TestForeseenForASecond(t *testing.T) {
	t.Parallel()
	r := &drain{foreseen: &foreseen{until: time.Now().Add(-time.Millisecond)}}
	if f := r.takeForeseen(); f != nil || r.foreseen != nil {
		t.Errorf("foreseen is %v", f)
	}
}

// behind is a hook that does something before each pipeline is sent and after it is answered.
type behind struct {
	before func()
	after  func(cmds []redis.Cmder)
}

func (b *behind) DialHook(next redis.DialHook) redis.DialHook { return next }

func (b *behind) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (b *behind) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		b.before()
		err := next(ctx, cmds)
		b.after(cmds)
		return err
	}
}

// What a claim asks for the next one may come to nothing. The claim gets its jobs, and the next one asks again.
func TestForeseenFails(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(s *stepped, r *drain) *behind{
		"the question has no answer": func(*stepped, *drain) *behind {
			return &behind{func() {}, func(cmds []redis.Cmder) { cmds[1].SetErr(errors.New("the answer is lost")) }}
		},
		"a setting is lost": func(s *stepped, r *drain) *behind {
			return &behind{func() { s.mini.HDel(r.keys.conf(), "rate_count") }, func([]redis.Cmder) {}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, r := farGroup(t)
				s.redis.AddHook(fault(s, r))
				s.claim(r, "first")
				left, err := s.redis.LLen(t.Context(), r.keys.queue(pathOf(partedGroups, "g", "f"))).Result()
				if err != nil || left == 50 || r.foreseen != nil {
					t.Errorf("%d of 50 jobs still wait, foreseen is %v: %v", left, r.foreseen, err)
				}
			})
		})
	}
}

// In a bucket with flows a claim takes no more jobs than it asked turns for, though more workers are free when it is sent:
// else some flow has a second turn before others have one. With groups it is sent two round trips after it was asked how many.
func TestClaimsAsManyAsItAskedTurnsFor(t *testing.T) {
	t.Parallel()
	flows := grouped("b", 100)
	flows.Group = nil
	for name, c := range map[string]struct {
		bucket Bucket
		want   func(held int) bool
	}{
		"flows":  {flows, func(held int) bool { return held == 2 }},
		"groups": {grouped("b", 100), func(held int) bool { return held > 2 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				worker := newWaiting() // a job is held until the claim is looked at
				s := newSteppedBucket(t, worker, c.bucket)
				for i := range 9 {
					job := Job{Bucket: "b", Flow: []string{"f", "g", "h"}[i%3], Payload: []byte("{}")}
					if c.bucket.Group != nil {
						job.Group = "group"
					}
					if _, err := s.client.Enqueue(t.Context(), job); err != nil {
						t.Fatal(err)
					}
				}
				r := s.drain()
				_, err := r.claim(t.Context(), "first", 2)
				held := len(r.heldNow())
				for range held {
					worker.end <- Done(200)
				}
				if err != nil {
					t.Fatal(err)
				}
				if !c.want(held) {
					t.Errorf("a claim that asked turns for two jobs, with %d workers free when it was sent, got %d", r.concurrency, held)
				}
			})
		})
	}
}
