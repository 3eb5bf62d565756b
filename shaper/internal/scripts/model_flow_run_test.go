package scripts_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// Whatever is done in whatever order to a bucket with flows: every job is in exactly one place, what is
// kept of a flow is true, all bounds and rates hold, a flow that may send is in the turn queue in time,
// and in the end all jobs have left and nothing is kept of any flow.
func TestFlowModel(t *testing.T) {
	checkFlowModel(t, false)
}

func checkFlowModel(t *testing.T, groups bool) {
	t.Helper()
	onBoth(t, func(t *testing.T, base *rig) {
		t.Helper()
		rapid.Check(t, func(rt *rapid.T) {
			if base.mini != nil && rapid.IntRange(0, 4).Draw(rt, "round") > 0 {
				return // it takes ten times as long
			}
			runFlowModel(rt, base, groups)
		})
	})
}

func runFlowModel(t *rapid.T, base *rig, groups bool) {
	rate := rapid.SampledFrom([]int64{50_000, 20, 3}).Draw(t, "rate")
	m := &flowModel{
		rig: base.fresh(t, fmt.Sprint("m", nextClaim())),
		s: settings{
			rateCount: rate, burst: rapid.Int64Range(1, 2).Draw(t, "burst"), capacity: rapid.Int64Range(3, 12).Draw(t, "capacity"),
			scheduled: rapid.Int64Range(1, 5).Draw(t, "scheduled"), inFlight: rapid.Int64Range(1, 6).Draw(t, "in flight"),
			dedupe: rapid.SampledFrom([]int64{-1, -1, 24 * 365 * 3600 * second}).Draw(t, "dedupe"),
		},
		of: flowSettings{
			rateCount: rapid.SampledFrom([]int64{0, 0, 5}).Draw(t, "flow rate"), capacity: rapid.Int64Range(0, 6).Draw(t, "flow capacity"),
			inFlight: rapid.Int64Range(0, 3).Draw(t, "flow in flight"), maxFlows: rapid.Int64Range(3, 9).Draw(t, "flows"),
			quotas: rapid.SampledFrom([]string{"", "", fmt.Sprintf("%d %d;", quotaCount, quotaWindow)}).Draw(t, "flow quotas"),
		},
		own: map[string]flowSettings{}, jobs: map[string]*modelJob{}, held: map[string]lease{}, last: map[string]ask{},
		lone: map[string]string{}, slots: map[string]*steady{}, flows: modelFlows,
	}
	m.configureFlows(m.s, m.of)
	m.obeyAttempts(2, 0)
	if groups {
		m.begin(t)
	}
	m.slots["bucket"] = &steady{interval: float64(second) / float64(rate), burst: m.s.burst}
	if rapid.IntRange(0, 2).Draw(t, "quotas") == 0 {
		m.slots["bucket"].quota = true
		m.hset("settings", "quotas", fmt.Sprintf("%d %d;", quotaCount, quotaWindow))
	}
	for _, flow := range m.flows {
		m.restart(flow)
		m.slots["flow "+flow].quota = m.of.quotas != ""
	}
	t.Repeat(map[string]func(*rapid.T){
		"enqueue": m.put, "enqueue 2": m.put,
		"expire": m.expireSome, "claim": m.claimSome, "claim 2": m.claimSome, "claim 3": m.claimSome,
		"reserve": m.reserveSome,
		"settle":  m.settleSome, "settle 2": m.settleSome,
		"lose":    m.lose,
		"operate": m.operate, "use again": m.useAgain,
		"control":       m.controlIt,
		"control group": m.controlAGroup,
		"purge":         m.purgeSome,
		"idle":          m.idle,
		"wait": func(t *rapid.T) {
			m.wait(rapid.SampledFrom([]int64{1000, 50_000, 400_000, second, 3 * second}).Draw(t, "time"))
		},
		"step": func(t *rapid.T) {
			if rapid.IntRange(0, 2).Draw(t, "steps") == 0 {
				m.step(rapid.SampledFrom([]int64{100_000, 3 * second, 3600 * second}).Draw(t, "back"))
			}
		},
		"": m.check,
	})
	m.drainAll(t)
}
