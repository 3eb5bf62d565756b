package scripts_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// Jobs of a disabled flow are kept where the bucket says so: those that wait stay, new ones get in up to the capacity of the flow, none
// departs, and none becomes a dead letter, the one that was answered 410 neither. Once the flow is enabled all depart, at the pace of the bucket, and other flows go on meanwhile.
func TestADisabledFlowKeepsItsJobs(t *testing.T) {
	disabling(t, func(t *testing.T, r *rig, flow, other string) {
		r.hset("settings", "flow_keep", 1, "flow_capacity", 6)
		r.putIn(flow, 3, 0, "gone")
		r.pass(second)
		held := r.drain(ask{want: 1}).jobs[0]
		r.putIn(flow, 3, 0, "w1", "w2")
		r.settle(outcome{lease: held, result: wasGone, signal: accepted, reason: "http_410", last: `{"cause":"permanent","status":410}`, claimedAt: r.now()})
		must.Equal(t, r.emptyDisabled(flow, 500), 0, "jobs became dead letters")
		must.Equal(t, r.looksAgain(flow), fmt.Sprint(r.now()+3600*second), "it is looked at")
		var codes []int64
		for n := range 6 {
			codes = append(codes, r.enqueue(nil, entry{id: fmt.Sprint("n", n)}.in(r, flow))[0].code)
		}
		if want := fmt.Sprint([]int64{1, 1, 1, flowFull, flowFull, flowFull}); fmt.Sprint(codes) != want {
			t.Errorf("new jobs were answered %v, want %s", codes, want)
		}
		if a := r.enqueue(nil, entry{id: "o1"}.in(r, other)); a[0].code != 1 {
			t.Errorf("a job of another flow got %+v", a)
		}
		r.pass(100 * second)
		must.Equal(t, r.drain(ask{}).ids(), "o1", "while it is disabled depart")
		a := r.answerOf(r.run(lua.InspectJob, r.keysOf(lua.InspectJob, flow), "w1", flow, r.withFlows(), r.member()))
		must.Equal(t, a.Int("flow_keeps"), 1, "job show does not say that the job is kept")
		r.wantStates(map[string]int64{"gone": isQueued, "w1": isQueued, "n2": isQueued})
		r.controlFlow(flow, "enable")
		left, at, first := map[string]bool{}, []int64{}, ""
		for range 40 {
			for _, job := range r.drain(ask{}).jobs {
				left[job.id], at, first = true, append(at, job.slot), cmp.Or(first, job.id)
				r.settle(outcome{lease: job, result: done, signal: accepted})
			}
			r.pass(100_000)
		}
		for i := 1; i < len(at); i++ {
			if at[i]-at[i-1] < 1000 {
				t.Errorf("two depart %d µs apart", at[i]-at[i-1])
			}
		}
		if len(left) != 6 || len(at) != 6 || !left["w1"] || !left["n2"] || first != "gone" {
			t.Errorf("once it is enabled %v depart, %s first", left, first)
		}
		if counts := r.counts(flow); !strings.HasPrefix(counts, "0 0 0") && counts != "" {
			t.Errorf("then the flow counts %q", counts)
		}
	})
}
