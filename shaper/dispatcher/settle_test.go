package dispatcher

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
)

// Outcomes stand together in a script only if they differ in nothing but the job: any other difference would be lost.
func TestOutcomesThatStandTogether(t *testing.T) {
	t.Parallel()
	same := func() *settlement {
		return &settlement{job: &leased{claim: "c", epoch: 1}, result: shaper.ResultRetry, delay: 5, last: "{}", reason: "status", line: "l"}
	}
	if !isAlike(same(), same()) {
		t.Error("outcomes that differ in nothing do not stand together")
	}
	for name, change := range map[string]func(s *settlement){
		"claim":  func(s *settlement) { s.job.claim = "d" },
		"batch":  func(s *settlement) { s.job.batch++ },
		"epoch":  func(s *settlement) { s.job.epoch++ },
		"result": func(s *settlement) { s.result = shaper.ResultDead },
		"spent":  func(s *settlement) { s.result, s.spent = shaper.ResultDead, true },
		"delay":  func(s *settlement) { s.delay++ },
		"last":   func(s *settlement) { s.last = "{ }" },
		"signal": func(s *settlement) { s.signal++ },
		"reason": func(s *settlement) { s.reason = "timeout" },
		"line":   func(s *settlement) { s.line = "m" },
		"answer": func(s *settlement) { s.answered.head = "h" },
		"use":    func(s *settlement) { s.use = "m 1 2" },
	} {
		other := same()
		change(other)
		if isAlike(same(), other) || isAlike(other, same()) {
			t.Errorf("outcomes with another %s stand together", name)
		}
	}
}

// What an outcome weighs: its bytes, and what it costs a script to correct budgets and to count what was used.
func TestWeightOfAnOutcome(t *testing.T) {
	t.Parallel()
	alone := rig.Bucket("alone", 1)
	pooled := rig.Pooled("pooled", 1, 1, shaper.Pool{Name: "vendor", Rate: rig.PerSecond(1)})
	for _, c := range []struct {
		bucket  shaper.Bucket
		outcome settlement
		most    int // in a script
	}{
		{alone, settlement{charged: "1 0 input:1 ="}, 64},
		{rig.Flowing("flowing", shaper.FlowKeyJob), settlement{charged: "1 0 input:1 ="}, 18},
		{pooled, settlement{charged: "1 1 input:1 ="}, 18},
		{alone, settlement{use: "m 1 1"}, 128},
		{alone, settlement{charged: "1 0 input:1 =", use: "m 1 1"}, 42},
		{alone, settlement{charged: "1 0 input:1 =", answered: result{body: make([]byte, settleBatchBytes/4)}}, 3},
	} {
		w := rig.NewPoolWorld(t, c.bucket)
		d := must.Get(New(Config{Timeout: rig.Patience, Redis: w.Server.Client(), Buckets: w.Buckets, Workers: rig.Workers(w.Buckets, shaper.WorkerFunc(func(context.Context, *shaper.Attempt) shaper.Outcome { return shaper.Done(200) }))}))(t)
		settler := newBucketLoop(d, d.store.Known(c.bucket.Name), t.Context()).settler
		if most := settleBatchBytes / settler.weigh(&c.outcome); most != c.most {
			t.Errorf("bucket %s, charged %q, used %q, %d bytes: %d in a script, want %d", c.bucket.Name, c.outcome.charged, c.outcome.use, len(c.outcome.answered.body), most, c.most)
		}
	}
}

// An outcome that Redis does not take at first is sent again. Else the job would be delivered once more when its lease ends.
func TestAnOutcomeIsSentUntilRedisTakesIt(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t, rig.Bucket("b", 1000))
	hook := &refusedSettles{refuse: 3, taken: make(chan struct{})}
	dispatch(w, shaper.WorkerFunc(w.Note), func(cfg *Config) {
		cfg.Lease = 5 * time.Second
		cfg.Redis.AddHook(hook)
	})
	w.Enqueue(1)
	w.Await(1)
	<-hook.taken
	w.AwaitEmpty() // the run that was taken may be that of a permit which came late and was given back
	w.WantClean()
}

// refusedSettles has Redis refuse the first runs of settle.lua.
type refusedSettles struct {
	mu     sync.Mutex
	refuse int
	once   sync.Once
	taken  chan struct{} // closed when a run is taken
}

type refusedByRedis struct{}

func (refusedByRedis) Error() string { return "ERR planted by a test" }
func (refusedByRedis) RedisError()   {}

func (r *refusedSettles) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *refusedSettles) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if lua.ScriptOf(cmd) != lua.Settle {
			return next(ctx, cmd)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.refuse > 0 {
			r.refuse--
			cmd.SetErr(refusedByRedis{})
			return refusedByRedis{}
		}
		err := next(ctx, cmd)
		if err == nil {
			r.once.Do(func() { close(r.taken) })
		}
		return err
	}
}

func (r *refusedSettles) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
