package dispatcher

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/internal/stored"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/producer"
)

// loops are what a dispatcher runs of some buckets, in virtual time, with a count of the
// scripts that it sends.
type loops struct {
	t      *testing.T
	redis  *redis.Client
	client *rig.Actors
	d      *Dispatcher

	rtt time.Duration // of each round trip

	mu      sync.Mutex
	scripts map[string]int
	most    int // of claims and questions before them, after which run ends; 0 any number
	stop    context.CancelFunc
}

// inBubble runs a test in virtual time, with a miniredis whose clock is that of the bubble.
func inBubble(t *testing.T, worker shaper.Worker, buckets []shaper.Bucket, test func(l *loops)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		mini := miniredis.NewMiniRedis()
		mini.ClockTTL(true)
		t.Cleanup(mini.Close)
		l := &loops{t: t, scripts: map[string]int{}, redis: redis.NewClient(&redis.Options{
			Dialer:                   func(context.Context, string, string) (net.Conn, error) { return mini.Dial() },
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})}
		t.Cleanup(func() { _ = l.redis.Close() })
		l.redis.AddHook(l)
		var err error
		if l.client, err = rig.NewActors(producer.Config{Redis: l.redis, Buckets: buckets}); err != nil {
			t.Fatal(err)
		}
		if l.d, err = New(Config{Redis: l.redis, Buckets: buckets, Workers: rig.Workers(buckets, worker)}); err != nil {
			t.Fatal(err)
		}
		test(l)
	})
}

// run has the dispatcher run for so long, or until it has looked for work too often.
func (l *loops) run(d time.Duration) {
	l.t.Helper()
	ctx, stop := context.WithTimeout(l.t.Context(), d)
	defer stop()
	l.mu.Lock()
	l.stop = stop
	l.mu.Unlock()
	if err := l.d.Run(ctx); err != nil {
		l.t.Error(err)
	}
}

func (l *loops) enqueue(jobs ...shaper.Job) {
	l.t.Helper()
	receipts, err := l.client.Enqueue(l.t.Context(), jobs...)
	for _, r := range receipts {
		if r.Refusal != nil {
			l.t.Fatalf("enqueue: %+v", r.Refusal)
		}
	}
	must.OK(l.t, err)
}

// looks is how often the dispatcher has looked for work.
func (l *loops) looks() int { return l.scripts["claim"] + l.scripts["reserve"] }

func (l *loops) note(cmds ...redis.Cmder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, cmd := range cmds {
		if script := lua.ScriptOf(cmd); script != nil && cmd.Name() != "eval" { // once for a server that does not know it
			l.scripts[script.Name()]++
		}
	}
	if l.most > 0 && l.looks() > l.most && l.stop != nil {
		l.stop()
	}
}

func (l *loops) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *loops) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		l.note(cmd)
		sleep(ctx, l.rtt) // of the bubble
		return next(ctx, cmd)
	}
}

func (l *loops) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		l.note(cmds...)
		sleep(ctx, l.rtt) // of the bubble
		return next(ctx, cmds)
	}
}

// A job that waits for a date beyond what a Duration holds costs nothing: dispatchers look as
// often as without it, and what is due before it leaves in time.
func TestFarDatesDoNotSpin(t *testing.T) {
	t.Parallel()
	bucket := func(levels int) shaper.Bucket {
		b := rig.Bucket("b", 100)
		if levels != codec.LevelsNone {
			f := shaper.DefaultFlowSettings()
			f.Key = shaper.FlowKeyJob
			b.Flow = &f
		}
		if levels == codec.LevelsGroups {
			g := shaper.DefaultGroupSettings()
			g.Key = shaper.FlowKeyJob
			b.Group = &g
		}
		return b
	}
	for _, date := range []time.Time{
		time.Date(2318, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2600, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC),
		time.Date(200_000, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		for _, levels := range []int{codec.LevelsNone, codec.LevelsFlows, codec.LevelsGroups} {
			t.Run(fmt.Sprint(date.Year(), " ", levels), func(t *testing.T) {
				t.Parallel()
				delivered := 0
				worker := shaper.WorkerFunc(func(context.Context, *shaper.Attempt) shaper.Outcome { delivered++; return shaper.Done(200) })
				inBubble(t, worker, []shaper.Bucket{bucket(levels)}, func(l *loops) {
					l.enqueue(shaper.Job{Bucket: "b", ID: "never", Flow: "f", Group: "g", Payload: []byte("x"), Delay: time.Hour})
					// The API refuses such a date by now. What was stored before stays.
					for _, key := range l.redis.Keys(l.t.Context(), "tundish:{b}:b:b:*").Val() {
						if name := strings.TrimPrefix(key, stored.Key("b", "")); strings.HasPrefix(name, "later:") || strings.HasPrefix(name, "due") {
							l.redis.ZAddXX(l.t.Context(), key, redis.Z{Member: l.redis.ZRange(l.t.Context(), key, 0, 0).Val()[0], Score: float64(date.UnixMicro())})
						}
					}
					l.enqueue(shaper.Job{Bucket: "b", ID: "soon", Flow: "f", Group: "g", Payload: []byte("x"), Delay: time.Minute})
					l.most = 2 * int(10*time.Minute/idleClaim)
					began := time.Now()
					l.run(10 * time.Minute)
					if delivered != 1 || l.looks() > l.most {
						l.t.Errorf("%d were delivered, and the dispatcher looked %d times in %s, want 1 and at most %d", delivered, l.looks(), time.Since(began), l.most)
					}
				})
			})
		}
	}
}

// die makes what a dispatcher leaves that had claimed these jobs and was killed at once.
func (l *loops) die(bucket string, jobs ...shaper.Job) {
	l.t.Helper()
	ctx, k := l.t.Context(), store.BucketKeys(bucket)
	for len(jobs) > 0 {
		some := jobs[:min(len(jobs), 256)]
		jobs = jobs[len(some):]
		l.enqueue(some...)
	}
	for _, id := range l.redis.HKeys(ctx, k.Body()).Val() {
		l.redis.HSet(ctx, k.Meta(), id, "3 1 0 0 0 c ")
		l.redis.ZAdd(ctx, k.Leases(), redis.Z{Member: id, Score: float64(time.Now().Add(l.d.cfg.Lease).UnixMicro())})
	}
	for flow, state := range l.redis.HGetAll(ctx, k.Flows()).Val() { // none is in flight, says the state
		fields := strings.Fields(state)
		fields[6] = fields[4]
		l.redis.HSet(ctx, k.Flows(), flow, strings.Join(fields, " "))
	}
	for _, key := range l.redis.Keys(ctx, k.Prefix+"*").Val() {
		if name := strings.TrimPrefix(key, k.Prefix); strings.HasPrefix(name, "q:") || strings.HasPrefix(name, "due") {
			l.redis.Del(ctx, key)
		}
	}
}

// All jobs of a dispatcher that was killed are back within its lease and 5 seconds, however many
// they are, also where Redis is far, and those of another bucket do not wait for them.
func TestRecoveryIsInTime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		jobs, flows int
		rtt         time.Duration
	}{
		"here":       {900, 0, 0},
		"far away":   {900, 0, 50 * time.Millisecond},
		"many flows": {600, 300, 20 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			large, small := rig.Bucket("large", 1), rig.Bucket("small", 1)
			large.Rate.Per, small.Rate.Per = time.Hour, time.Hour
			if c.flows > 0 {
				f := shaper.DefaultFlowSettings()
				f.Key, large.Flow = shaper.FlowKeyJob, &f
			}
			var jobs []shaper.Job
			for i := range c.jobs {
				jobs = append(jobs, shaper.Job{Bucket: "large", ID: fmt.Sprint("j", i), Flow: fmt.Sprint("f", i%max(c.flows, 1)), Payload: []byte("x")})
			}
			inBubble(t, rig.NewWaiting(), []shaper.Bucket{large, small}, func(l *loops) {
				l.die("large", jobs...)
				l.die("small", shaper.Job{Bucket: "small", Payload: []byte("x")})
				l.rtt = c.rtt
				l.run(l.d.cfg.Lease + 5*time.Second)
				for _, bucket := range []string{"large", "small"} {
					// One may have left since.
					if n := l.redis.ZCard(l.t.Context(), store.BucketKeys(bucket).Leases()).Val(); n > 1 {
						l.t.Errorf("bucket %s: %d jobs are not back; scripts %v", bucket, n, l.scripts)
					}
				}
				// Two scripts find and mend 200 leases, or one flow set; all else goes on every 2 s.
				if most := 3 * (c.jobs/sweepAtMost + 20); l.scripts["sweep"]+l.scripts["take_back"]+l.scripts["flows_of"] > most {
					l.t.Errorf("scripts %v, want at most %d that take back", l.scripts, most)
				}
			})
		})
	}
}

// At 800 new flows a second, of which none has jobs for long, none is refused: idle ones make room at once.
// That costs no script more.
func TestIdleFlowsMakeRoomForNewOnes(t *testing.T) {
	t.Parallel()
	for _, inGroups := range []bool{false, true} {
		t.Run(fmt.Sprintf("groups_%t", inGroups), func(t *testing.T) {
			t.Parallel()
			const perRound, every = 40, 50 * time.Millisecond
			rounds := 10
			if redistest.Soak {
				rounds = 20
			}
			b := rig.Bucket("b", 2000)
			f, g := shaper.DefaultFlowSettings(), shaper.DefaultGroupSettings()
			f.Key, f.MaxFlows, f.Rate = shaper.FlowKeyJob, 300, admission.Rate{Count: 10, Per: time.Second, Unit: admission.UnitRequests}
			if b.Flow = &f; inGroups {
				g.Key, g.Rate, b.Group = shaper.FlowKeyJob, f.Rate, &g
			}
			worker := shaper.WorkerFunc(func(context.Context, *shaper.Attempt) shaper.Outcome { return shaper.Done(200) })
			inBubble(t, worker, []shaper.Bucket{b}, func(l *loops) {
				ctx, stop := context.WithCancel(l.t.Context())
				var ended sync.WaitGroup
				ended.Go(func() { _ = l.d.Run(ctx) })
				refused := map[shaper.Reason]int{}
				for round := range rounds {
					jobs := make([]shaper.Job, perRound)
					for i := range jobs {
						name := fmt.Sprint(round, "-", i)
						jobs[i] = shaper.Job{Bucket: "b", Flow: name, Group: name, Payload: []byte("x")}
					}
					receipts := must.Get(l.client.Enqueue(ctx, jobs...))(l.t)
					for _, r := range receipts {
						if r.Refusal != nil {
							refused[r.Refusal.Reason]++
						}
					}
					sleep(ctx, every)
				}
				stop()
				ended.Wait()
				if len(refused) > 0 {
					l.t.Errorf("refused %v of %d jobs", refused, perRound*rounds)
				}
				if l.scripts["enqueue"] > 2*rounds {
					l.t.Errorf("scripts %v", l.scripts)
				}
			})
		})
	}
}
