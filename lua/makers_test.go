package lua_test

import (
	"fmt"
	"testing"
)

// One caller makes no more than its share of the flows. Others still make some, and its own flows still take jobs.
func TestFlowsOfACaller(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{}, flowSettings{maxFlows: 8, perCaller: 3})
		of := func(caller, flow string, n int) entry {
			return entry{id: fmt.Sprint(caller, flow, n), flow: flow, caller: caller}
		}
		want := func(codes string, jobs ...entry) {
			t.Helper()
			if got := r.codes(jobs...); got != codes {
				t.Errorf("codes %s, want %s", got, codes)
			}
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
		if fmt.Sprint(codes) != "[1 1 21 21 1 1]" {
			t.Errorf("the batch is answered %v", codes)
		}
		want("11", of("", "n4", 1))
		// A flow that is gone counts no longer.
		r.ok(r.c.HDel(r.ctx, r.key("flows"), "a2", "n2").Err())
		want("1 21", of(anna, "a4", 2), of(anna, "a5", 1))
		if n := r.c.ZCard(r.ctx, r.key("flow_makers")).Val(); n != 6 {
			t.Errorf("%d flows have a maker, want 6", n)
		}
	})
}

// Nothing is noted until a bucket has a tenth as many flows as one caller may make. A caller so never has more than its share, and
// without a share nothing is noted at all.
func TestFlowsOfACallerInSmallBuckets(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{}, flowSettings{maxFlows: 100, perCaller: 20})
		in := 0
		for i := range 30 {
			if r.enqueue(nil, entry{id: fmt.Sprint("j", i), flow: fmt.Sprint("f", i), caller: anna})[0].code == isIn {
				in++
			}
			if n := r.c.Exists(r.ctx, r.key("flow_makers")).Val(); n != 0 && i < 2 {
				t.Errorf("flow %d has a maker", i)
			}
		}
		if in != 20 {
			t.Errorf("%d flows were made, want 20", in)
		}
		// All are gone: what is left of them is found when it stands in the way.
		r.ok(r.c.Del(r.ctx, r.key("flows")).Err())
		for i := range 20 {
			if i == 3 {
				r.ok(r.c.HDel(r.ctx, r.key("flows"), "g0").Err())
			}
			if got := r.enqueue(nil, entry{id: fmt.Sprint("k", i), flow: fmt.Sprint("g", i), caller: anna})[0]; got.code != isIn {
				t.Errorf("flow %d: %+v", i, got)
			}
		}
		without := r.fresh(t, "without")
		without.configureFlows(settings{}, flowSettings{maxFlows: 100})
		without.enqueue(nil, entry{id: "j", flow: "f", caller: anna})
		if n := without.c.Exists(without.ctx, without.key("flow_makers")).Val(); n != 0 {
			t.Error("without a share a flow has a maker")
		}
	})
}
