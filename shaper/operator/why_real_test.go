package operator_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/schedule"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
	"github.com/tundish-io/tundish/tundishtest"
)

// silenced is a connection of a process that was killed: nothing comes through any more.
type silenced struct {
	redis.UniversalClient

	away *atomic.Bool
}

func (s silenced) Process(ctx context.Context, cmd redis.Cmder) error {
	if s.away.Load() {
		cmd.SetErr(context.DeadlineExceeded)
		return context.DeadlineExceeded
	}
	return s.UniversalClient.Process(ctx, cmd)
}

// Each word of why a bucket sends nothing, made true by a dispatcher that delivers, or does not: it is told within two seconds, that no dispatcher serves
// the bucket within 15, and until when, where that is known.
func TestEachWhyIsToldSoon(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	perDay := func(n int64, unit string) admission.Rate { return admission.Rate{Count: n, Per: day, Unit: unit} }
	flows := func(b *shaper.Bucket) {
		*b = rig.Grouped(b.Name, 1000)
		b.Group = nil
	}
	for name, c := range map[string]struct {
		bucket  func(b *shaper.Bucket)
		outcome shaper.Outcome
		act     func(t *testing.T, b operator.BucketControl) error
		kill    bool
		code    operator.WhyCode
		until   time.Duration // from the beginning on, about; 0: not known
	}{
		"closed": {
			bucket: func(b *shaper.Bucket) { b.Drain = &schedule.Drain{Cron: "0 2 * * *", For: time.Hour} },
			code:   operator.WhyClosed, until: 2 * time.Hour,
		},
		"breaker": {
			bucket: func(b *shaper.Bucket) {
				b.Adapt.Scope = shaper.ScopeBucket
				b.Breaker = shaper.Breaker{Failures: 1, OpenFor: time.Minute, MaxOpen: time.Minute}
			},
			outcome: shaper.Outcome{Result: shaper.ResultRetry, Reason: "http_500", Signal: shaper.SignalFailed},
			code:    operator.WhyBreaker, until: time.Minute,
		},
		"held": {
			bucket:  func(b *shaper.Bucket) { b.Adapt.Scope = shaper.ScopeBucket },
			outcome: shaper.Outcome{Result: shaper.ResultHeld, Reason: "http_429", Signal: shaper.SignalThrottled, RetryAfter: 30 * time.Minute},
			code:    operator.WhyHeld, until: 30 * time.Minute,
		},
		"quota": {
			bucket: func(b *shaper.Bucket) { b.Quotas = []admission.Rate{perDay(1, admission.UnitRequests)} },
			code:   operator.WhyQuota, until: day,
		},
		"budget": {
			bucket: func(b *shaper.Bucket) { b.Budgets = shaper.Budgets{perDay(15, "tokens")} },
			code:   operator.WhyBudget, until: day,
		},
		"pool": {
			bucket: func(b *shaper.Bucket) {
				b.Pool = &shaper.Pool{Name: "vendor", Rate: rig.PerSecond(1000), Burst: 1, Quotas: []admission.Rate{perDay(1, admission.UnitRequests)}}
				b.Weight = 1
			},
			code: operator.WhyPool, until: day,
		},
		"flows": {
			bucket: flows,
			act: func(t *testing.T, b operator.BucketControl) error {
				return b.Flow("f").Pause(t.Context(), "")
			},
			code: operator.WhyFlows,
		},
		"paused": {
			act:  func(t *testing.T, b operator.BucketControl) error { return b.Pause(t.Context(), "") },
			code: operator.WhyPaused,
		},
		"no dispatcher": {kill: true, code: operator.WhyNoDispatcher},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				conn := tundishtest.Open(t).Redis()
				b := rig.Bucket("b", 1000)
				b.MaxInFlight = 5
				if c.bucket != nil {
					c.bucket(&b)
				}
				op, err := operator.New(operator.Config{Timeout: rig.Patience, Redis: conn, Buckets: []shaper.Bucket{b}})
				if err != nil {
					t.Fatal(err)
				}
				client, err := producer.New(producer.Config{Timeout: rig.Patience, Redis: conn, Buckets: []shaper.Bucket{b}})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(client.Close)
				outcome := c.outcome
				if outcome.Result == 0 && outcome.Signal == shaper.SignalNone {
					outcome = shaper.Done(200)
				}
				worker := shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
					if err := a.Depart(); err != nil {
						return shaper.Returned("late")
					}
					return outcome
				})
				var away atomic.Bool
				d, err := dispatcher.New(dispatcher.Config{
					Redis: silenced{conn, &away}, Buckets: []shaper.Bucket{b}, Workers: rig.Workers([]shaper.Bucket{b}, worker), Program: "dispatcher", Registerer: prometheus.NewRegistry(),
				})
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- d.Run(ctx) }()
				defer func() {
					stop()
					<-ended
				}()
				began := time.Now()
				why := func() operator.Why {
					t.Helper()
					info, err := op.Bucket("b").Info(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					s, err := op.Fleet().Look(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					return info.Why(s.IsServed("b"), s.Permits("b"))
				}
				<-time.After(6 * time.Second) // the fleet knows the dispatcher
				if c.act != nil {
					if err := c.act(t, op.As("anna").Bucket("b")); err != nil {
						t.Fatal(err)
					}
				}
				patience := 2 * time.Second
				if c.kill {
					away.Store(true)
					patience = 15 * time.Second
					stop()
				}
				for i := range 4 {
					job := shaper.Job{Bucket: "b", Payload: []byte("x"), Units: shaper.Units{"tokens": 10}}
					if b.Flow != nil {
						job.Flow = "f"
					}
					if receipts, err := client.Enqueue(t.Context(), job); err != nil || receipts[0].Refusal != nil {
						t.Fatal(i, receipts, err)
					}
				}
				<-time.After(patience)
				got := why()
				if got.Code != c.code || got.Sentence == "" {
					t.Errorf("%+v, want %s", got, c.code)
				}
				until := got.Until.Sub(began)
				if c.until == 0 && !got.Until.IsZero() || c.until > 0 && (until < c.until-10*time.Second || until > c.until+c.until/20+20*time.Second) {
					t.Errorf("until %s: %s after the beginning, want about %s", got.Until, until, c.until)
				}
			})
		})
	}
}
