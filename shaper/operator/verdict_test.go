package operator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/schedule"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/operator"
)

// cause is something that keeps jobs.
type cause struct {
	code   operator.WhyCode
	scope  shaper.Scope
	bucket func(b *shaper.Bucket) // its settings
	before func(j *judged)        // before jobs come
	jobs   func(j *judged)        // nil: six jobs
}

func quotas() []admission.Rate { return []admission.Rate{rig.Rate("2/10m")} }

func pool(p shaper.Pool) func(b *shaper.Bucket) {
	return func(b *shaper.Bucket) {
		p.Name, p.Burst = "vendor", 1
		if p.Rate.IsZero() {
			p.Rate = rig.PerSecond(1000)
		}
		b.Pool, b.Weight = &p, 1
	}
}

func breaker(scope shaper.Scope) cause {
	return cause{code: operator.WhyBreaker, scope: scope, bucket: func(b *shaper.Bucket) {
		b.Adapt.Scope = scope
		b.Breaker = shaper.Breaker{Failures: 1, OpenFor: 10 * time.Minute, MaxOpen: 10 * time.Minute}
	}, before: func(j *judged) {
		j.answers(shaper.Outcome{Result: shaper.ResultRetry, Reason: "http_500", Signal: shaper.SignalFailed})
	}}
}

func causes() map[string]cause {
	return map[string]cause{
		"paused": {code: operator.WhyPaused, scope: shaper.ScopeBucket, before: func(j *judged) { must.OK(j.t, j.op.As("anna").Bucket("b").Pause(j.t.Context(), "tests")) }},
		"flow paused": {code: operator.WhyPaused, scope: shaper.ScopeFlow, before: func(j *judged) {
			must.OK(j.t, j.op.As("anna").Bucket("b").Group("g").Flow("f").Pause(j.t.Context(), ""))
		}},
		"group paused": {code: operator.WhyPaused, scope: shaper.ScopeGroup, before: func(j *judged) {
			must.OK(j.t, j.op.As("anna").Bucket("b").Group("g").Pause(j.t.Context(), ""))
		}},
		"disabled": {code: operator.WhyDisabled, scope: shaper.ScopeFlow, bucket: func(b *shaper.Bucket) {
			b.Flow.WhenDisabled, b.Flow.Capacity, b.Breaker.OnGone = shaper.KeepDisabled, 100, shaper.GoneDisables
		}, before: func(j *judged) {
			j.answers(shaper.Outcome{Result: shaper.ResultDead, Reason: "gone", Status: 410, Gone: true, Signal: shaper.SignalAccepted})
		}},
		"missing": {code: operator.WhyMissing, scope: shaper.ScopeFlow, bucket: func(b *shaper.Bucket) { b.Flow.MustExist = true }, before: func(j *judged) {
			var p operator.FlowPatch
			must.OK(j.t, p.Put(shaper.FlowWeight, "1"))
			must.Get(j.op.As("anna").Bucket("b").Group("g").Flow("f").Set(j.t.Context(), p))(j.t)
		}, jobs: func(j *judged) { // they are in when the flow loses its settings
			j.enqueue(6)
			had, err := j.op.As("anna").Bucket("b").Group("g").Flow("f").Reset(j.t.Context())
			if err != nil || !had {
				j.t.Fatal(had, err)
			}
		}},
		"host fault": {code: operator.WhyHostFault, scope: shaper.ScopeBucket, before: func(j *judged) {
			j.answers(shaper.LocalFault("local_dns", "no resolver answers", time.Second))
		}},
		"no dispatcher":  {code: operator.WhyNoDispatcher, scope: shaper.ScopeBucket, before: func(j *judged) { j.kill() }},
		"breaker":        breaker(shaper.ScopeBucket),
		"flow's breaker": breaker(shaper.ScopeFlow),
		"held": {code: operator.WhyHeld, scope: shaper.ScopeBucket, bucket: func(b *shaper.Bucket) { b.Adapt.Scope = shaper.ScopeBucket }, before: func(j *judged) {
			j.answers(shaper.Outcome{Result: shaper.ResultHeld, Reason: "http_429", Signal: shaper.SignalThrottled, RetryAfter: 20 * time.Minute})
		}},
		"quota":        {code: operator.WhyQuota, scope: shaper.ScopeBucket, bucket: func(b *shaper.Bucket) { b.Quotas = quotas() }},
		"flow's quota": {code: operator.WhyQuota, scope: shaper.ScopeFlow, bucket: func(b *shaper.Bucket) { b.Flow.Quotas = quotas() }},
		"own quota": {code: operator.WhyQuota, scope: shaper.ScopeFlow, before: func(j *judged) {
			var p operator.FlowPatch
			must.OK(j.t, p.Put(shaper.FlowQuotas, "2/10m"))
			must.Get(j.op.As("anna").Bucket("b").Group("g").Flow("f").Set(j.t.Context(), p))(j.t)
		}},
		"group's quota": {code: operator.WhyQuota, scope: shaper.ScopeGroup, bucket: func(b *shaper.Bucket) { b.Group.Quotas = quotas() }},
		"flow's budget": {code: operator.WhyBudget, scope: shaper.ScopeFlow, bucket: func(b *shaper.Bucket) {
			b.Flow.Budgets = shaper.Budgets{{Count: 15, Per: 10 * time.Minute, Unit: "tokens"}}
		}},
		"pool's quota": {code: operator.WhyQuota, scope: shaper.ScopePool, bucket: pool(shaper.Pool{Quotas: quotas()})},
		"budget": {code: operator.WhyBudget, scope: shaper.ScopeBucket, bucket: func(b *shaper.Bucket) {
			b.Budgets = shaper.Budgets{{Count: 15, Per: 10 * time.Minute, Unit: "tokens"}}
		}},
		// The first waiting job reserves more than is free, and recent jobs reserved less.
		"budget for a large job": {code: operator.WhyBudget, scope: shaper.ScopeBucket, bucket: func(b *shaper.Bucket) {
			b.Budgets, b.BudgetBurst = shaper.Budgets{{Count: 100, Per: 10 * time.Minute, Unit: "tokens"}}, 100
		}, before: (*judged).smallJobs, jobs: (*judged).largeJobs},
		"pool's budget for a large job": {
			code: operator.WhyBudget, scope: shaper.ScopePool,
			bucket: pool(shaper.Pool{Budgets: shaper.Budgets{{Count: 100, Per: 10 * time.Minute, Unit: "tokens"}}, BudgetBurst: 100}),
			before: (*judged).smallJobs, jobs: (*judged).largeJobs,
		},
		"flow's rate":  {code: operator.WhyRate, scope: shaper.ScopeFlow, bucket: func(b *shaper.Bucket) { b.Flow.Rate, b.Flow.Burst = rig.Rate("1/m"), 1 }},
		"group's rate": {code: operator.WhyRate, scope: shaper.ScopeGroup, bucket: func(b *shaper.Bucket) { b.Group.Rate, b.Group.Burst = rig.Rate("1/m"), 1 }},
		"pool's rate":  {code: operator.WhyRate, scope: shaper.ScopePool, bucket: pool(shaper.Pool{Rate: rig.Rate("6/m")}), jobs: func(j *judged) { j.enqueue(12) }},
		"closed": {code: operator.WhyClosed, scope: shaper.ScopeBucket, bucket: func(b *shaper.Bucket) {
			b.Drain = &schedule.Drain{Cron: fmt.Sprintf("0 %d * * *", (time.Now().UTC().Hour()+2)%24), For: time.Hour}
		}},
		"in flight": {code: operator.WhyInFlight, scope: shaper.ScopeBucket, bucket: func(b *shaper.Bucket) { b.MaxInFlight = 2 }, before: (*judged).hang},
		"flow in flight": {
			code: operator.WhyInFlight, scope: shaper.ScopeFlow, bucket: func(b *shaper.Bucket) { b.Flow.MaxInFlight = 2 }, before: (*judged).hang,
		},
		"failing": {code: operator.WhyFailing, scope: shaper.ScopeFlow, bucket: func(b *shaper.Bucket) { b.Breaker.Failures = 0 }, before: func(j *judged) {
			j.answers(shaper.Retry("http_401", ""))
		}},
		"late":  {code: operator.WhyLate, scope: shaper.ScopeBucket, before: func(j *judged) { j.late.Store(true) }, jobs: func(j *judged) { j.enqueue(40) }},
		"later": {code: operator.WhyLater, scope: shaper.ScopeFlow, jobs: func(j *judged) { j.enqueue(6, func(job *shaper.Job) { job.Delay = time.Hour }) }},
		"adaptive rate": {code: operator.WhyAdaptiveRate, scope: shaper.ScopeBucket, bucket: func(b *shaper.Bucket) { b.Adapt.Scope = shaper.ScopeBucket }, before: func(j *judged) {
			j.answers(shaper.Outcome{Result: shaper.ResultHeld, Reason: "http_429", Signal: shaper.SignalThrottled})
		}, jobs: func(j *judged) { j.enqueue(40) }},
	}
}

// hang has the receiver answer when it is repaired.
func (j *judged) hang() {
	hangs := make(chan struct{})
	j.hangs.Store(&hangs)
}

// begin makes causes true.
func begin(t *testing.T, all ...cause) *judged {
	t.Helper()
	var changes []func(*shaper.Bucket)
	for _, c := range all {
		changes = append(changes, c.bucket)
	}
	j := newVerdictRig(t, changes...)
	j.bring(all...)
	pass(35 * time.Second)
	return j
}

// smallJobs sends jobs that together reserve 80 tokens.
func (j *judged) smallJobs() {
	j.enqueue(8)
	pass(10 * time.Second)
}

// largeJobs enqueues jobs that reserve 50 tokens each.
func (j *judged) largeJobs() {
	j.enqueue(6, func(job *shaper.Job) { job.Units = shaper.Units{"tokens": 50} })
}

// bring has jobs come, behind what keeps them.
func (j *judged) bring(all ...cause) {
	j.t.Helper()
	for _, c := range all {
		if c.before != nil {
			c.before(j)
		}
	}
	came := false
	for _, c := range all {
		if c.jobs != nil {
			c.jobs(j)
			came = true
		}
	}
	if !came || len(all) > 1 {
		j.enqueue(6)
	}
}

// Each cause is named, with its scope, and with all jobs that wait. What is said to help helps: the bucket sends, or is empty.
func TestVerdictNamesTheCauseAndItsCure(t *testing.T) {
	t.Parallel()
	for name, c := range causes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := begin(t, c)
				v := j.verdict()
				if v.Code != c.code || len(v.Blocked) == 0 || v.Blocked[0].Code != c.code || v.Blocked[0].Scope != c.scope {
					t.Errorf("%s: %s: %+v, want %s of a %s", v.Code, v.Sentence(), v.Blocked, c.code, c.scope)
				}
				then := map[operator.WhyCode]string{operator.WhyFailing: "job retry b --group=g --flow=f"}[c.code] // most need no second command
				if c.code == operator.WhyBreaker || c.code == operator.WhyHeld {
					then = map[shaper.Scope]string{shaper.ScopeBucket: "bucket release b", shaper.ScopeFlow: "flow release --group=g b f", shaper.ScopePool: "pool release p"}[c.scope]
				}
				for i := range v.Blocked {
					if got := strings.Join(v.Blocked[i].Then, " "); v.Blocked[i].Code == c.code && got != then {
						t.Errorf("then %q, want %q", got, then)
					}
				}
				j.cure()
			})
		})
	}
}

// Of two causes one of both is named at a time, and their cures one after the other have the bucket send.
func TestVerdictOfTwoCauses(t *testing.T) {
	t.Parallel()
	for _, pair := range []string{
		"paused+breaker", "paused+quota", "flow paused+held", "flow paused+closed", "group paused+flow's breaker", "group paused+in flight", "no dispatcher+flow's quota",
		"no dispatcher+later", "breaker+budget", "breaker+flow's rate", "held+pool's quota", "held+flow in flight", "quota+flow's rate", "flow's quota+failing",
		"budget+closed", "closed+failing", "in flight+group's rate", "failing+later", "late+flow's rate", "pool's rate+failing", "late+later",
	} {
		t.Run(pair, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				one, two, _ := strings.Cut(pair, "+")
				all := causes()
				j := begin(t, all[one], all[two])
				v := j.verdict()
				codes := []operator.WhyCode{all[one].code, all[two].code}
				if !slices.Contains(codes, v.Code) {
					t.Errorf("%s: %s: %+v, want one of %s", v.Code, v.Sentence(), v.Blocked, codes)
				}
				j.cure()
			})
		})
	}
}
