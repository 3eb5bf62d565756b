package operator_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/internal/stored"
	"github.com/tundish-io/tundish/schedule"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
	"github.com/tundish-io/tundish/tundishtest"
)

// A bucket that keeps its rate sends, also while one of its flows is blocked, which it names. Attempts that all fail are no progress.
func TestSendsOnlyWhatSucceeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newVerdictRig(t, func(b *shaper.Bucket) { b.Breaker.Failures = 0 })
		must.OK(t, j.op.As("anna").Bucket("b").Group("g").Flow("held").Pause(t.Context(), ""))
		j.enqueue(500)
		j.enqueue(3, func(job *shaper.Job) { job.Flow = "held" })
		pass(45 * time.Second)
		v := j.verdict()
		if v.Code != operator.WhySends || v.IsProblem() || v.EmptyUnknown != "1 flow is blocked" || !v.Empty.IsZero() {
			t.Errorf("%s: %s; empty %s %q", v.Code, v.Sentence(), v.Empty, v.EmptyUnknown)
		}
		if len(v.Blocked) != 2 || v.Blocked[1].Code != operator.WhyPaused || v.Blocked[1].Name != "held" || v.Blocked[1].Group != "g" || !slices.Equal(v.Blocked[1].Action, []string{"flow", "resume", "--group=g", "b", "held"}) {
			t.Errorf("%+v", v.Blocked)
		}
		j.answers(shaper.Dead("http_401", ""))
		pass(70 * time.Second)
		v = j.verdict()
		if v.Code != operator.WhyFailing || !v.IsProblem() || !v.IsStalled() || !strings.HasPrefix(v.Sentence(), "1") || !strings.Contains(v.Sentence(), "attempts of the last minute failed: http_401. Sends 0 of 2/s. ") {
			t.Errorf("every attempt fails: %s: %s", v.Code, v.Sentence())
		}
	})
}

// A bucket outside of its delivery windows is no problem, whether it is empty or jobs wait, and nothing is advised that sends the night's batch by day.
func TestClosedBucketIsNoProblem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newVerdictRig(t, func(b *shaper.Bucket) {
			b.Drain = &schedule.Drain{Cron: fmt.Sprintf("0 %d * * *", (time.Now().UTC().Hour()+2)%24), For: time.Hour}
		})
		pass(35 * time.Second)
		if v, _, _ := j.readVerdict(); v.IsProblem() || v.IsStalled() || len(v.Blocked) > 0 || v.Sentence() != "Nothing waits; closed, opens 02:00" || v.State() != "closed, opens 02:00" {
			t.Errorf("empty: %s: %s: %s: %+v", v.Code, v.State(), v.Sentence(), v.Blocked)
		}
		j.enqueue(6)
		pass(35 * time.Second)
		v := j.verdict()
		if v.Code != operator.WhyClosed || v.IsProblem() || v.IsStalled() || len(v.Blocked[0].Action) > 0 || !v.Blocked[0].Until.After(time.Now()) || v.State() != "closed, opens 02:00" {
			t.Errorf("6 jobs wait: %s: %s; the action is %q until %s", v.Code, v.Sentence(), v.Blocked[0].Action, v.Blocked[0].Until)
		}
	})
}

// A quota that is used up for the next seconds, while deliveries keep the rate, is no cause: the rate is.
func TestQuotaAtTheRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newVerdictRig(t, func(b *shaper.Bucket) { b.Quotas = []admission.Rate{rig.Rate("2/s")} })
		j.enqueue(300)
		pass(45 * time.Second)
		for range 20 {
			if v, _, _ := j.readVerdict(); v.Code != operator.WhySends || v.Blocked[0].Code != operator.WhyRate {
				t.Fatalf("%s: %s", v.Code, v.Sentence())
			}
			pass(100 * time.Millisecond)
		}
	})
}

// A quota and a budget of a flow that are used up are named, with the time that ends them and the command that raises them.
func TestUsedUpByAFlow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		bucket        func(b *shaper.Bucket)
		detail, value string
	}{
		"quota": {func(b *shaper.Bucket) { b.Flow.Quotas = []admission.Rate{rig.Rate("1000/d"), rig.Rate("2/h")} }, "(quota used up, 2/h, until 01:0", "--quotas=1000/d, 4/h"},
		"budget": {func(b *shaper.Bucket) {
			b.Flow.Budgets = shaper.Budgets{{Count: 25, Per: 2 * time.Hour, Unit: "tokens"}, {Count: 900, Per: time.Hour, Unit: "tokens"}}
		}, "(budget, 25 tokens/2h0m0s, until 02:0", "--budgets=50 tokens/2h0m0s, 900 tokens/h"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := newVerdictRig(t, c.bucket)
				j.enqueue(8)
				pass(time.Minute)
				v := j.verdict()
				if want := []string{"flow", "set", c.value, "--group=g", "b", "f"}; !slices.Equal(v.Blocked[0].Action, want) || !strings.Contains(v.Sentence(), "6 of f "+c.detail) {
					t.Errorf("%q, want %q: %s", v.Blocked[0].Action, want, v.Sentence())
				}
			})
		})
	}
}

// A job that has failed waits for the breaker of its receiver, not for its next attempt: it counts once.
func TestRetriesBehindABreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := breaker(shaper.ScopeFlow)
		j := newVerdictRig(t, c.bucket, func(b *shaper.Bucket) { b.Retry = b.Retry.WithSchedule(20 * time.Minute) })
		j.bring(c)
		pass(35 * time.Second)
		if v := j.verdict(); len(v.Blocked) != 1 || v.Blocked[0].Code != operator.WhyBreaker || v.Blocked[0].Jobs != 6 || v.Due != 5 {
			t.Errorf("%s: %d due: %s %+v", v.Code, v.Due, v.Sentence(), v.Blocked)
		}
	})
}

// A pause does not count against a bucket that has been resumed.
func TestResumedBucketIsNotSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newVerdictRig(t)
		bucket := j.op.As("anna").Bucket("b")
		must.OK(t, bucket.Pause(t.Context(), "tests"))
		j.enqueue(100)
		pass(time.Minute)
		must.Get(bucket.Resume(t.Context()))(t)
		for range 10 {
			pass(3 * time.Second)
			if v := j.verdict(); v.Code != operator.WhySends && v.Code != operator.WhyStarting || v.IsProblem() || v.Grows > 0 {
				t.Errorf("%s: %s", v.Code, v.Sentence())
			}
		}
	})
}

// A backlog that grows says when the bucket is full.
func TestBacklogGrows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newVerdictRig(t, func(b *shaper.Bucket) { b.Capacity = 5000 })
		for range 60 {
			j.enqueue(14)
			pass(time.Second)
		}
		v := j.verdict()
		if v.Code != operator.WhySends || !strings.Contains(v.Sentence(), "Backlog grows by 12/s: full in 6 min") {
			t.Errorf("%s: %s", v.Code, v.Sentence())
		}
	})
}

// That jobs will be left at the finish is said once deliveries stop, hours before, with what keeps them.
func TestFinishIsForeseen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // at midnight
		j := newVerdictRig(t, func(b *shaper.Bucket) {
			b.Drain = &schedule.Drain{Cron: "0 0 * * *", For: 6 * time.Hour, FinishBy: "06:00"}
			b.Breaker.Failures = 0
		})
		j.enqueue(600)
		pass(10 * time.Minute)
		if v := j.verdict(); v.Left > 0 {
			t.Errorf("while all goes well: %s: %s", v.Code, v.Sentence())
		}
		j.answers(shaper.Retry("http_503", ""))
		pass(5 * time.Minute)
		v := j.verdict()
		if v.Code != operator.WhyFailing || v.Left < 500 || !v.IsProblem() || !strings.Contains(v.Sentence(), "will be left at the finish at 06:00") || !strings.Contains(v.Sentence(), "http_503") {
			t.Errorf("%s: %d left: %s", v.Code, v.Left, v.Sentence())
		}
	})
}

// Jobs that leave in time, evenly until the finish of a short window, are no problem, although the rate rises with all that rounding leaves and the last
// success was in the window before.
func TestShortWindow(t *testing.T) {
	t.Parallel()
	for rate, jobs := range map[string]int{"10/m": 3, "2/s": 20} {
		t.Run(rate, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := newVerdictRig(t, func(b *shaper.Bucket) {
					b.Rate, b.Drain = rig.Rate(rate), &schedule.Drain{Cron: "*/10 * * * *", FinishBy: "1m"}
				})
				for range 2 {
					j.enqueue(jobs)
					pass(time.Until(time.Now().Truncate(10 * time.Minute).Add(10 * time.Minute)))
					for s := range 60 {
						if v, _, _ := j.readVerdict(); v.IsProblem() || v.Left > 0 {
							t.Errorf("after %d s: %s: %s", s, v.Code, v.Sentence())
						}
						pass(time.Second)
					}
				}
				if v := j.verdict(); v.Code != operator.WhyEmpty {
					t.Errorf("not all left: %s", v.Sentence())
				}
			})
		})
	}
}

// Of very many flows some are looked at, by chance. The verdict says so, and its causes stand for all that waits.
func TestVerdictOfASample(t *testing.T) {
	t.Parallel()
	conn := redistest.Start(t).Client()
	b := rig.Flowing("b", shaper.FlowKeyJob)
	op := must.Get(operator.New(operator.Config{Timeout: rig.Patience, Redis: conn, Buckets: []shaper.Bucket{b}}))(t)
	must.OK(t, op.As("anna").Bucket("b").Flow("0").Pause(t.Context(), "")) // the bucket is in Redis now
	const flows = 100_003                                                  // no multiple of what is looked at
	k, ctx, pipe := store.BucketKeys("b"), t.Context(), conn.Pipeline()
	for i := range flows {
		flow := fmt.Sprint(i)
		pipe.HSet(ctx, k.Body(), flow, fmt.Sprintf(`1 %d 00000000000cn001 {"f":"%s"}`+"\n", time.Now().UnixMicro(), flow))
		pipe.RPush(ctx, k.Queue(flow), flow)
		pipe.HSet(ctx, k.Flows(), flow, stored.Waiting(1).String())
		if i%10 == 0 {
			pipe.HSet(ctx, k.FlowSettings(), flow, fmt.Sprintf("- - - - - - %d\n-", time.Now().UnixMicro()))
		}
		if pipe.Len() > 5000 {
			must.Get(pipe.Exec(ctx))(t)
		}
	}
	must.Get(pipe.Exec(ctx))(t)
	conn.ConfigResetStat(ctx)
	infos := must.Get(op.BucketInfos(ctx, "b"))(t)
	all := must.Get(op.Verdicts(ctx, infos))(t)
	v, paused, sum := all[0], int64(0), int64(0)
	for _, c := range v.Blocked {
		if sum += c.Jobs; c.Code == operator.WhyPaused {
			paused += c.Jobs
		}
	}
	if v.Looked >= 3000 || v.Flows != flows || sum != flows || v.Waits != flows || len(v.Blocked) > 25 || !strings.Contains(v.Sentence(), "of 100,003 flows)") {
		t.Errorf("%d of %d flows were looked at, %d of %d jobs: %s", v.Looked, v.Flows, sum, v.Waits, v.Sentence())
	}
	if v.Code != operator.WhyNoDispatcher { // nobody delivers: that comes before what flows say, but for a pause
		t.Errorf("%s: %s", v.Code, v.Sentence())
	}
	if paused < flows/20 || paused > flows/5 {
		t.Errorf("%d jobs are in paused flows, want about %d", paused, flows/10)
	}
	stats, _ := conn.Info(ctx, "commandstats").Result()
	for line := range strings.Lines(stats) {
		if strings.Contains(line, "hrandfield") || strings.Contains(line, "evalsha") || strings.Contains(line, "fcall") || strings.Contains(line, "eval:") {
			t.Log(strings.TrimSpace(line))
		}
	}
}

// slowRuns is a store whose scripts take their time.
type slowRuns struct {
	redis.Hook

	each time.Duration
}

func (slowRuns) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (slowRuns) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (s slowRuns) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if cmd.Name() == "evalsha" {
				pass(s.each)
			}
		}
		return next(ctx, cmds)
	}
}

// A store that is slow is asked about fewer flows, and the verdict comes in time: the embedded one took longer than a call may take for 2,000 flows.
func TestVerdictOfASlowStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const flows, patience = 600, time.Second
		b := rig.Flowing("b", shaper.FlowKeyJob)
		b.Capacity = flows
		conn := tundishtest.Open(t).Redis()
		op := must.Get(operator.New(operator.Config{Timeout: patience, Redis: conn, Buckets: []shaper.Bucket{b}}))(t)
		client := must.Get(producer.New(producer.Config{Timeout: rig.Patience, Redis: conn, Buckets: []shaper.Bucket{b}}))(t)
		defer client.Close()
		jobs := make([]shaper.Job, flows)
		for i := range jobs {
			jobs[i] = shaper.Job{Bucket: "b", Flow: fmt.Sprint(i), Payload: []byte("1")}
		}
		for some := range slices.Chunk(jobs, 100) {
			must.Get(client.Enqueue(t.Context(), some...))(t)
		}
		conn.AddHook(slowRuns{each: 100 * time.Millisecond})
		infos := must.Get(op.BucketInfos(t.Context(), "b"))(t)
		began := time.Now()
		all := must.Get(op.Verdicts(t.Context(), infos))(t)
		if v, took := all[0], time.Since(began); v.Looked != 80 || v.Flows != flows || took > patience/2 {
			t.Errorf("%d of %d flows were looked at in %s, want 80 of %d in less than %s: %s", v.Looked, v.Flows, took, flows, patience/2, v.Sentence())
		}
	})
}
