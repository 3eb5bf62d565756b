package scripts_test

import (
	"fmt"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// One caller makes no more than its share of the flows. Others still make some, and its own flows still take jobs.
func TestFlowsOfACaller(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{}, flowSettings{maxFlows: 8, perCaller: 3})
		of := func(caller, flow string, n int) entry {
			return entry{id: fmt.Sprint(caller, flow, n), flow: flow, caller: caller}
		}
		want := func(codes string, jobs ...entry) {
			t.Helper()
			must.Equal(t, r.codes(jobs...), codes, "codes")
		}
		want("1 1 1", of(anna, "a1", 1), of(anna, "a2", 1), of(anna, "a3", 1))
		want("21 1 3 21", of(anna, "a4", 1), of(anna, "a1", 2), of(anna, "a2", 1), of(anna, "a4", 1)) // sent twice it is the same
		if got := r.enqueue(nil, of(anna, "a4", 1))[0]; got.code != 21 || got.position != 3 || got.eta != 3 {
			t.Errorf("refused with %+v", got)
		}
		want("1 1 1", of(bert, "b1", 1), of("", "n1", 1), of(bert, "a1", 1))
		// In one batch, some get in: of jobs that are alike too.
		var codes []int64
		for _, a := range r.enqueue(nil, of(bert, "b2", 1), of(bert, "b3", 1), of(bert, "b4", 1), of(anna, "a4", 1), of("", "n2", 1), of(bert, "b3", 2)) {
			codes = append(codes, a.code)
		}
		must.Equal(t, fmt.Sprint(codes), "[1 1 21 21 1 1]", "the batch is answered %v", codes)
		want("11", of("", "n4", 1))
		// A flow that is gone counts no longer.
		r.hdel("flows", "a2", "n2")
		want("1 21", of(anna, "a4", 2), of(anna, "a5", 1))
		must.Equal(t, r.zcard("flow_owners"), 6, "flows have a owner")
	})
}

// Nothing is noted until a bucket has a tenth as many flows as one caller may make. A caller so never has more than its share, and
// without a share nothing is noted at all.
func TestFlowsOfACallerInSmallBuckets(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{}, flowSettings{maxFlows: 100, perCaller: 20})
		in := 0
		for i := range 30 {
			if r.enqueue(nil, entry{id: fmt.Sprint("j", i), flow: fmt.Sprint("f", i), caller: anna})[0].code == isIn {
				in++
			}
			if n := r.exists("flow_owners"); n != 0 && i < 2 {
				t.Errorf("flow %d has a owner", i)
			}
		}
		must.Equal(t, in, 20, "flows were made")
		// All are gone: what is left of them is found when it stands in the way.
		r.del("flows")
		for i := range 20 {
			if i == 3 {
				r.hdel("flows", "g0")
			}
			if got := r.enqueue(nil, entry{id: fmt.Sprint("k", i), flow: fmt.Sprint("g", i), caller: anna})[0]; got.code != isIn {
				t.Errorf("flow %d: %+v", i, got)
			}
		}
		without := r.fresh(t, "without")
		without.configureFlows(settings{}, flowSettings{maxFlows: 100})
		without.enqueue(nil, entry{id: "j", flow: "f", caller: anna})
		must.Equal(t, without.exists("flow_owners"), 0, "without a share a flow has a owner")
	})
}

// The place of a flow comes back when its last job has left, and a flow that is made again counts for the caller that makes it then.
// Jobs without a caller make flows that count for no caller.
func TestFlowsOfACallerComeBack(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{rateCount: 1000}, flowSettings{maxFlows: 100, perCaller: 2})
		in := func(caller string, flows ...string) string {
			jobs := make([]entry, len(flows))
			for i, flow := range flows {
				jobs[i] = entry{id: fmt.Sprint(caller, flow, r.now(), i), flow: flow, caller: caller}
			}
			r.pass(1)
			return r.codes(jobs...)
		}
		leave := func() {
			for range 10 {
				r.pass(second)
				for _, job := range r.drain(ask{want: 100}).jobs {
					r.settle(outcome{lease: job, result: 1})
				}
			}
			must.Be(t, r.hlen("flows"), 0, "flows are left")
		}
		want := func(what, got, codes string) {
			t.Helper()
			must.Equal(t, got, codes, "%s: codes", what)
		}
		want("three flows", in(anna, "a1", "a2", "a3"), "1 1 21")
		leave()
		want("after they have left", in(anna, "a3", "a4", "a5"), "1 1 21")
		leave()
		want("made by another caller", in(bert, "a3", "a4"), "1 1")
		want("which count for the first one no longer", in(anna, "a1", "a2", "a5"), "1 1 21")
		leave()

		want("without a caller", in("", "a1", "o1", "o2", "o3"), "1 1 1 1")
		want("a caller, in these flows too", in(anna, "a1", "a2", "o1"), "1 1 1")
		want("one too many", in(anna, "a5"), "21")
	})
}

// Those who made flows that are gone are forgotten by the audit, also where nobody makes flows any more.
func TestOwnersOfGoneFlowsAreForgotten(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{}, flowSettings{maxFlows: 1000, perCaller: 1000})
		for from := 0; from < 600; from += 50 {
			var jobs []entry
			for i := from; i < from+50; i++ {
				jobs = append(jobs, entry{id: fmt.Sprint("j", i), flow: fmt.Sprint("f", i), caller: []string{anna, bert}[i%2]})
			}
			r.enqueue(nil, jobs...)
		}
		made := func() int64 { return r.zcard("flow_owners") }
		must.Be(t, made(), 500, "flows have owners")
		for i := range 300 {
			r.cancel(fmt.Sprint("j", 2*i), "0")
		}
		r.audit()
		r.audit()
		if made() >= 500 || made() < 250 {
			t.Errorf("%d flows have owners after two audits, of which 300 are there", made())
		}
		r.del("flows")
		r.audit()
		must.Equal(t, made(), 0, "flows that are gone have owners")
	})
}
