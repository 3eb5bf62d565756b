package dispatcher

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/internal/checker"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/producer"
)

func TestWakeLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rate string
		ttl  time.Duration
		pool string
		want time.Duration
	}{
		{"300/s", 0, "", 12 * time.Millisecond},
		{"80/s", 0, "", 12 * time.Millisecond},
		{"50000/s", 0, "", 12 * time.Millisecond},
		{"10/s", 0, "", 50 * time.Millisecond},
		{"1/m", 0, "", shaper.MaxPermitTTL}, // there is nothing to bunch
		{"300/s", 10 * time.Millisecond, "", 10 * time.Millisecond},
		{"300/s", 10 * time.Second, "", 12 * time.Millisecond},
		{"1/m", 0, "500/s", 12 * time.Millisecond}, // a pool has many such buckets
	} {
		t.Run(fmt.Sprint(c.rate, " ", c.ttl, " ", c.pool), func(t *testing.T) {
			t.Parallel()
			b := rig.Bucket("b", 1)
			b.Rate, b.PermitTTL = rig.MustRate(t, c.rate), c.ttl
			if c.pool != "" {
				b.Pool = &shaper.Pool{Name: "p", Rate: rig.MustRate(t, c.pool), Burst: 1}
			}
			d := &claimer{bucketConn: &bucketConn{Bucket: &store.Bucket{Name: "b"}}}
			d.Settings.Store(&b)
			must.Equal(t, d.wakeLimit(), c.want, "wakeLimit")
		})
	}
}

// Processes stand still together, however often and for however long, and all slots go on. What may still leave
// makes no bunch, and all that was due while they ran leaves.
func TestStallsMakeNoBunch(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.IntRange(40, 1000).Draw(t, "rate")
		interval := time.Second / time.Duration(rate)
		limit := wakeLimit(interval, 250*time.Millisecond)
		const length = 5 * time.Second
		var history checker.History
		var still time.Duration
		begin, departed := time.Unix(0, 0), 0
		stopped, wakes := time.Duration(0), time.Duration(0) // the process stands still from one to the other
		for slot := time.Duration(0); slot < length; slot += interval {
			for slot >= wakes {
				stopped = wakes + time.Duration(rapid.IntRange(100, 1500).Draw(t, "runs"))*time.Millisecond
				wakes = stopped + time.Duration(rapid.IntRange(1, 400).Draw(t, "stands"))*time.Millisecond
				still += min(wakes, length) - min(stopped, length)
			}
			at := slot
			if slot >= stopped {
				at = wakes
			}
			if at-slot <= limit {
				departed++
				history.Delivered(fmt.Sprint(slot), 1, begin.Add(at))
			}
		}
		r := history.Check()
		if got, want := r.MostIn(time.Second), rate*105/100+1; got > want {
			t.Fatalf("%d in a second, want at most %d", got, want)
		}
		if got, want := r.MostIn(100*time.Millisecond), rate*15/100+1; got > want {
			t.Fatalf("%d in 100 ms, want at most %d", got, want)
		}
		if allowed := float64(rate) * (length - still).Seconds(); float64(departed) < allowed-10 {
			t.Fatalf("%d left, the running time allows %.0f", departed, allowed)
		}
	})
}

// A delivery that wakes too late gives its permit back. A worker that then takes its time to connect does not.
func TestLateWakeGivesBack(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		late, connects time.Duration
		closes         time.Duration // the end of the window, after the slot; 0 none
		want           shaper.Result
	}{
		{0, 0, 0, shaper.ResultDone},
		{12 * time.Millisecond, 0, 0, shaper.ResultDone},
		{13 * time.Millisecond, 0, 0, shaper.ResultReturned},
		{240 * time.Millisecond, 0, 0, shaper.ResultReturned},
		{12 * time.Millisecond, 150 * time.Millisecond, 0, shaper.ResultDone},
		{0, 251 * time.Millisecond, 0, shaper.ResultReturned},
		{4 * time.Millisecond, 0, 5 * time.Millisecond, shaper.ResultDone},
		{5 * time.Millisecond, 0, 5 * time.Millisecond, shaper.ResultReturned},
		{0, 99 * time.Millisecond, 100 * time.Millisecond, shaper.ResultDone},
		{0, 100 * time.Millisecond, 100 * time.Millisecond, shaper.ResultReturned},
		{0, 251 * time.Millisecond, time.Hour, shaper.ResultReturned},
	} {
		t.Run(fmt.Sprint(c.late, " ", c.connects, " ", c.closes), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var worker shaper.Worker = shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
					<-time.After(c.connects)
					if a.Depart() != nil {
						return shaper.Returned("late")
					}
					return shaper.Done(200)
				})
				conn := &bucketConn{Bucket: store.SettleOnly(&shaper.Bucket{Name: "b"}, store.BucketKeys("b")), store: &store.Store{}, life: t.Context()}
				d := newDeliverer(newSettler(newLeaseHolder(conn, nil), nil, nil), worker, 1)
				job := &leased{wakeLimit: lateWake, Attempt: shaper.Attempt{ID: "j"}, slot: time.Now().Add(-c.late), permitTTL: 250 * time.Millisecond}
				d.held.jobs["j"] = job
				if c.closes > 0 {
					job.closes = job.slot.Add(c.closes)
				}
				job.depart = func(time.Duration) { job.departed = time.Now() }
				must.Equal(t, d.deliver(request{job})[0].Result, c.want, "Result")
			})
		})
	}
}

// TestLateAnswersDoNotBunch: claims whose answers come late, or are lost and asked for again, make no bunch of
// departures and cost no more slots than theirs.
func TestLateAnswersDoNotBunch(t *testing.T) {
	t.Parallel()
	const length, every, late = 9 * time.Second, 3 * time.Second, 240 * time.Millisecond
	for _, rate := range []int{300, 80} {
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprint(rate, " lost ", lost), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					var history checker.History
					worker := shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
						if a.Depart() != nil {
							return shaper.Returned("late")
						}
						history.Delivered(a.ID, a.Number, time.Now())
						return shaper.Done(200)
					})
					first := time.Now()
					drainFor(t, rig.Bucket("b", int64(rate)), worker, length, func() redis.Hook {
						first = first.Add(-every / 2) // one dispatcher after the other
						return &lateClaims{every: every, late: late, lost: lost, last: first}
					})
					r := history.Check()
					t.Logf("%s; most in 1s %d, in 100ms %d", r, r.MostIn(time.Second), r.MostIn(100*time.Millisecond))
					if got, want := r.MostIn(time.Second), rate*105/100; got > want {
						t.Errorf("%d in a second, want at most %d", got, want)
					}
					if got, want := r.MostIn(100*time.Millisecond), rate*15/100; got > want {
						t.Errorf("%d in 100 ms, want at most %d", got, want)
					}
					// Each of the two dispatchers runs but for that share of the time.
					if want := float64(rate) * .95 * (1 - late.Seconds()/every.Seconds()); r.Rate < want {
						t.Errorf("%.1f/s, want at least %.1f/s", r.Rate, want)
					}
				})
			})
		}
	}
}

// A dispatcher whose very first answers come late does not know the clock of Redis yet, and sends nothing in slots
// that may be over: another one has the slots of that time.
func TestFirstAnswerIsLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const rate, late = 80, 240 * time.Millisecond
		var history checker.History
		worker := shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
			history.Delivered(a.ID, a.Number, time.Now())
			return shaper.Done(200)
		})
		hooks := []*firstRuns{{after: late}, {before: 190 * time.Millisecond}}
		drainFor(t, rig.Bucket("b", rate), worker, 3*time.Second, func() redis.Hook {
			hook := hooks[0]
			hooks = hooks[1:]
			return hook
		})
		r := history.Check()
		if got := r.MostIn(100 * time.Millisecond); got > rate*15/100 {
			t.Errorf("%d in 100 ms, want at most %d: %s", got, rate*15/100, r)
		}
		if want := rate * (.98 - late.Seconds()/3); r.Rate < want {
			t.Errorf("%.1f/s, want at least %.1f/s", r.Rate, want)
		}
	})
}

// TestSlowHandshakeKeepsTheRate: a worker that always needs 150 ms to connect is not late.
func TestSlowHandshakeKeepsTheRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const rate = 300
		var history checker.History
		worker := shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
			<-time.After(150 * time.Millisecond)
			if a.Depart() != nil {
				return shaper.Returned("late")
			}
			history.Delivered(a.ID, a.Number, time.Now())
			return shaper.Done(200)
		})
		drainFor(t, rig.Bucket("b", rate), worker, 10*time.Second, nil)
		if r := history.Check(); r.Rate < .98*rate || r.MostIn(time.Second) > rate+1 {
			t.Errorf("%s; most in 1s %d", r, r.MostIn(time.Second))
		}
	})
}

// drainFor has two dispatchers drain a bucket that does not run dry, for so long.
func drainFor(t *testing.T, b shaper.Bucket, worker shaper.Worker, length time.Duration, hook func() redis.Hook) {
	t.Helper()
	jobs := make([]shaper.Job, int(b.Rate.PerSecond()*length.Seconds()))
	for i := range jobs {
		jobs[i] = shaper.Job{Bucket: b.Name, ID: fmt.Sprint("j", i), Payload: []byte("{}")}
	}
	drainJobs(t, b, jobs, worker, length, hook)
}

// drainJobs has two dispatchers drain these jobs, for so long.
func drainJobs(t *testing.T, b shaper.Bucket, jobs []shaper.Job, worker shaper.Worker, length time.Duration, hook func() redis.Hook) {
	t.Helper()
	store := miniredis.NewMiniRedis()
	store.ClockTTL(true)
	t.Cleanup(store.Close)
	client := must.Get(rig.NewActors(producer.Config{Redis: rig.BubbleClient(t, store.Dial), Buckets: []shaper.Bucket{b}}))(t)
	for len(jobs) > 0 {
		n := min(len(jobs), 500)
		must.Get(client.Enqueue(t.Context(), jobs[:n]...))(t)
		jobs = jobs[n:]
	}
	ctx, stop := context.WithTimeout(t.Context(), length)
	defer stop()
	var running sync.WaitGroup
	for range 2 {
		conn := rig.BubbleClient(t, func() (net.Conn, error) { return store.Dial() })
		if hook != nil {
			conn.AddHook(hook())
		}
		d := must.Get(New(Config{Redis: conn, Buckets: []shaper.Bucket{b}, Workers: rig.Workers([]shaper.Bucket{b}, worker)}))(t)
		running.Go(func() {
			if err := d.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
}

// lateClaims makes the answer of a claim late, or loses it, each time that so long has passed.
type lateClaims struct {
	every, late time.Duration
	lost        bool
	last        time.Time
}

func (l *lateClaims) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *lateClaims) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if lua.ScriptOf(cmd) != lua.Claim || err != nil {
			return err
		}
		if time.Since(l.last) < l.every {
			return nil
		}
		l.last = time.Now()
		<-time.After(l.late)
		if l.lost {
			cmd.SetErr(os.ErrDeadlineExceeded)
		}
		return cmd.Err()
	}
}

// firstRuns makes the first claim and the first sweep wait before they are sent, and their answers come late.
type firstRuns struct {
	before, after time.Duration
	mu            sync.Mutex
	answered      []*lua.Script
}

func (f *firstRuns) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *firstRuns) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		script := lua.ScriptOf(cmd)
		if script != lua.Claim && script != lua.Sweep || f.knows(script) {
			return next(ctx, cmd)
		}
		<-time.After(f.before)
		err := next(ctx, cmd)
		if err == nil { // else the server does not know the script yet, and it is sent again
			f.mu.Lock()
			f.answered = append(f.answered, script)
			f.mu.Unlock()
			<-time.After(f.after)
		}
		return err
	}
}

func (f *firstRuns) knows(script *lua.Script) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Contains(f.answered, script)
}

func (f *firstRuns) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (l *lateClaims) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
