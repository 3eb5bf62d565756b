package scripts_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/stored"
	"github.com/tundish-io/tundish/lua"
)

// estimated is a bucket of which it is told when its jobs leave.
type estimated struct {
	name  string
	rate  int64 // per second, 0 means 10
	burst int64
	pool  *poolSettings
	flow  *flowSettings
	batch int64
	set   func(r *rig) // what else holds
	bound bool         // what is told is the earliest time
	late  int64        // microseconds that a job may leave later than it was told; 0: 300 ms
}

func (r *rig) obeys(field, value string) {
	r.hset("settings", field, value)
}

// says has a scope, by its pace, do what its downstream asked for: a hold, and a lower rate.
func (r *rig) says(pace string, till, count, per int64) {
	r.ok(r.c.HSet(r.ctx, pace, "down", stored.Downstream{Till: till, RateCount: count, RatePer: per, Cut: r.now(), ChangedAt: r.now(), Reason: "status-429"}.String()).Err())
}

// came has jobs come that go before those of normal priority that come more than a second later.
func (r *rig) came(n int, like entry) {
	r.obeys("aging", fmt.Sprint(second))
	for i := range n {
		like.id = fmt.Sprint("came", i)
		r.enqueue(nil, like)
	}
}

// estimates has each thing that may hold a job back.
func estimates() []estimated {
	const minute = 60 * second
	return []estimated{
		{name: "rate"},
		{name: "burst", burst: 4},
		{name: "quota", set: func(r *rig) { r.obeys("quotas", fmt.Sprint(5, " ", minute, ";")) }},
		{name: "quotas", set: func(r *rig) { r.obeys("quotas", fmt.Sprint(5, " ", 10*second, ";", 11, " ", 10*minute, ";")) }},
		{name: "quota of less than the rate", burst: 3, set: func(r *rig) { r.obeys("quotas", fmt.Sprint(12, " ", second, ";")) }},
		{name: "pool", pool: &poolSettings{rateCount: 1, burst: 2}},
		{name: "quota of the pool", pool: &poolSettings{rateCount: 100, quotas: fmt.Sprint(4, " ", minute, ";")}},
		{name: "hold of the pool", pool: &poolSettings{rateCount: 100}, set: func(r *rig) { r.says(r.poolKey("pace"), r.now()+40*second, 0, 0) }},
		{name: "adaptive rate of the pool", pool: &poolSettings{rateCount: 100}, set: func(r *rig) { r.says(r.poolKey("pace"), 0, 500, 1000*second) }},
		{name: "hold", set: func(r *rig) { r.says(r.key("pace"), r.now()+25*second, 0, 0) }},
		{name: "adaptive rate", set: func(r *rig) { r.says(r.key("pace"), 0, 500, 1000*second) }, late: 2500_000},
		{name: "hold and quota", set: func(r *rig) {
			r.says(r.key("pace"), r.now()+25*second, 0, 0)
			r.obeys("quotas", fmt.Sprint(5, " ", minute, ";"))
		}},
		{name: "windows", set: func(r *rig) {
			r.obeyTimetable(stretch{from: beforeEpoch, kind: "c"}, stretch{from: minute, kind: "o", opened: minute}, stretch{from: minute + second/2, kind: "c"},
				stretch{from: 2 * minute, kind: "o", opened: 2 * minute}, stretch{from: 3 * minute, kind: "x"})
		}},
		{name: "calendar and adaptive rate", set: func(r *rig) {
			r.obeyTimetable(stretch{from: beforeEpoch, kind: "o", count: 200, per: second}, stretch{from: 100 * minute, kind: "x"})
			r.says(r.key("pace"), 0, 2000, 1000*second)
		}, late: second},
		{name: "window and quota", set: func(r *rig) {
			r.obeyTimetable(stretch{from: beforeEpoch, kind: "c"}, stretch{from: minute, kind: "o", opened: minute}, stretch{from: 10 * minute, kind: "x"})
			r.obeys("quotas", fmt.Sprint(5, " ", minute, ";"))
		}},
		{name: "finish", set: func(r *rig) {
			r.obeyTimetable(stretch{from: beforeEpoch, kind: "o", opened: beforeEpoch, finish: 2 * minute}, stretch{from: 2 * minute, kind: "c"}, stretch{from: 3 * minute, kind: "x"})
		}, late: 2 * second},
		{name: "finish of batches", batch: 3, set: func(r *rig) {
			r.obeyTimetable(stretch{from: beforeEpoch, kind: "o", opened: beforeEpoch, finish: 2 * minute}, stretch{from: 2 * minute, kind: "c"}, stretch{from: 3 * minute, kind: "x"})
		}, late: 8 * second},
		{name: "batches", rate: 1, batch: 3, late: second},
		{name: "batches and quota", batch: 3, set: func(r *rig) { r.obeys("quotas", fmt.Sprint(2, " ", minute, ";")) }},
		{name: "bound in flight", set: func(r *rig) { r.obeys("max_in_flight", "2") }, bound: true},
		{name: "flow", flow: &flowSettings{rateCount: 1, burst: 2}},
		{name: "quota of the flow", flow: &flowSettings{quotas: fmt.Sprint(4, " ", minute, ";")}},
		{name: "older jobs of lower priority", set: func(r *rig) { r.came(60, entry{priority: 4}) }},
		{name: "older jobs of lower priority in the flow", flow: &flowSettings{}, set: func(r *rig) { r.came(60, entry{priority: 4, flow: "f"}) }},
		{name: "jobs that are due", set: func(r *rig) { r.came(60, entry{due: "+1000000"}) }},
		{name: "jobs of the flow that are due", flow: &flowSettings{rateCount: 5}, set: func(r *rig) { r.came(60, entry{due: "+1000000", flow: "f"}) }},
		{name: "quota and flow", flow: &flowSettings{rateCount: 2}, set: func(r *rig) { r.obeys("quotas", fmt.Sprint(5, " ", minute, ";")) }, late: 600_000},
	}
}

// begun is such a bucket, from which three jobs left a moment ago, and these wait. It returns what these were told when they came.
func (e *estimated) begun(t *testing.T, base *rig, jobs ...string) (r *rig, told map[string]int64) {
	t.Helper()
	r = base.fresh(t, fmt.Sprint("b", nextClaim()))
	if e.pool != nil {
		r.pool = "p" + r.name
		r.configurePool(*e.pool)
	}
	s := settings{rateCount: max(e.rate, 0), burst: e.burst, capacity: 1000, inFlight: 1000}
	if s.rateCount == 0 {
		s.rateCount = 10
	}
	r.setTime(epoch - 2*second)
	if e.flow != nil {
		r.configureFlows(s, *e.flow)
	} else {
		r.configure(s)
	}
	if e.batch > 0 {
		r.batches(e.batch, 100_000, 0)
	}
	put := func(ids ...string) (etas map[string]int64) {
		etas = map[string]int64{}
		for _, id := range ids {
			flow := ""
			if e.flow != nil {
				flow = "f"
			}
			a := r.enqueue(nil, entry{id: id, flow: flow})[0]
			must.Be(t, a.code, 1, "%s: %+v", id, a)
			etas[id] = a.eta
		}
		return etas
	}
	r.leave(t, 1) // the pace begins
	put("before0", "before1", "before2")
	if e.set != nil {
		e.set(r)
	}
	r.leave(t, 2*second)
	r.setTime(epoch)
	return r, put(jobs...)
}

// leave has jobs leave for a time, or till none is left, and returns when each did.
func (r *rig) leave(t *testing.T, length int64) map[string]int64 {
	t.Helper()
	slots := map[string]int64{}
	for end := r.now() + length; r.now() < end; {
		c := r.claimAll(ask{horizon: 100_000})
		var ended []lease
		for _, job := range c.jobs {
			slots[job.id] = job.slot
			ended = append(ended, job)
		}
		if len(ended) > 0 {
			r.settleAll(done, ended...)
		}
		if c.next == 0 && len(ended) == 0 && r.hlen("body") == 0 {
			break
		}
		step := int64(50_000)
		if c.next > r.now()+second {
			step = min(c.next-r.now()-second/2, 5*second)
		}
		r.pass(min(step, max(end-r.now(), 1)))
	}
	return slots
}

// What a receipt, a look at the job and one at the bucket say, what max_wait goes by, and what a full bucket tells to wait, is the same. With a
// finish the last two rest on the earliest departure.
func TestEstimatesAgree(t *testing.T) {
	onBothInCI(t, func(t *testing.T, base *rig) {
		for _, e := range estimates() {
			r, told := e.begun(t, base, numbered(12)...)
			last, flow := r.job("j11"), ""
			finish := e.name == "finish" || e.name == "finish of batches"
			if !finish { // each job that comes makes that rate faster
				if d := last.instant - told["j11"]; d < -1 || d > 1 {
					t.Errorf("%s: the receipt tells %d µs, the job %d", e.name, told["j11"]-epoch, last.instant-epoch)
				}
			}
			if d := r.inspect().empty - last.instant; e.flow == nil && (d < -1 || d > 1) {
				t.Errorf("%s: the last job tells %d µs, the bucket %d", e.name, last.instant-epoch, last.instant-epoch+d)
			}
			if e.flow != nil {
				flow = "f"
			}
			short := r.enqueue(nil, entry{id: "short", flow: flow, maxWait: "1"})[0]
			next := r.enqueue(nil, entry{id: "next", flow: flow, maxWait: fmt.Sprint(short.eta - r.now() + 1)})[0]
			if short.code != 17 || short.wait < short.eta-r.now()-1 || short.wait > short.eta-r.now() || next.code != 1 || (next.eta != short.eta) != finish || next.eta < short.eta || next.eta < last.instant-1 {
				t.Errorf("%s: max_wait: %+v, then %+v; the job before leaves in %d µs", e.name, short, next, last.instant-r.now())
			}
			unfinished := r.inspect().unfinished
			r.obeys("capacity", fmt.Sprint(unfinished))
			full := r.enqueue(nil, entry{id: "full", flow: flow})[0]
			if want := max(r.firstLeaves(t)-r.now(), 1); full.code != 7 || e.flow == nil && (full.wait < want-e.late-1 && !finish || full.wait > want+e.late+100_000) {
				t.Errorf("%s: a full bucket: %+v, and the next job leaves in %d µs", e.name, full, want)
			}
		}
	})
}

// firstLeaves is when the first of the jobs that count against the capacity is estimated to leave.
func (r *rig) firstLeaves(t *testing.T) int64 {
	t.Helper()
	first := int64(math.MaxInt64)
	for _, id := range r.c.HKeys(r.ctx, r.key("body")).Val() {
		if job := r.job(id); job.state == isQueued {
			first = min(first, job.instant)
		}
	}
	return first
}

// Jobs leave when their receipts said so.
func TestEstimatesComeTrue(t *testing.T) {
	t.Parallel()
	onReal(t, func(t *testing.T, base *rig) {
		for _, e := range estimates() {
			r, told := e.begun(t, base, numbered(12)...)
			for id := range told { // with all of them there
				told[id] = r.job(id).instant
			}
			slots := r.leave(t, 1300*second)
			late := int64(300_000)
			if e.late > 0 {
				late = e.late
			}
			for i := range 12 {
				id := fmt.Sprint("j", i)
				at, known := slots[id]
				if d := at - told[id]; !known || !e.bound && (d < -late || d > late) || d < -late {
					t.Errorf("%s: job %d was told %.3f s, and left at %.3f s", e.name, i, float64(told[id]-epoch)/second, float64(at-epoch)/second)
				}
			}
		}
	})
}

// Jobs that are alike are told the same as jobs one by one, also where a quota lets some leave at once and others much later.
func TestAlikeJobsAreToldOfQuotas(t *testing.T) {
	onBothInCI(t, func(t *testing.T, base *rig) {
		for _, e := range estimates() {
			_, told := e.begun(t, base, numbered(12)...)
			r, _ := e.begun(t, base)
			if e.flow != nil || r.c.HExists(r.ctx, r.key("settings"), "timetable").Val() { // these are decided one by one
				continue
			}
			keys, args := r.alike(nil, 12, 3, "")
			for i := range 12 {
				args = append(args, fmt.Sprint("alike", i), fmt.Sprintf("%011dcn%03d \n", 0, i+1))
			}
			in := lua.NewReader(r.run(lua.Enqueue, keys, args...))
			_, from, how, _, eta, count, per := in.Int(), in.Int(), in.Int(), in.Int(), in.Int(), in.Int(), in.Int()
			for i := range int64(12) {
				at := max(eta+i*per/count, from)
				if how == 2 {
					at = in.Int()
				}
				if want := told[fmt.Sprint("j", i)]; how == 0 || e.batch == 0 && (at < want-2 || at > want+2) {
					t.Errorf("%s: %d: of many it was told %d µs, alone %d", e.name, i, at-epoch, want-epoch)
				}
			}
			if in.Err() != nil || in.Left() > 0 {
				t.Errorf("%s: %d, %v", e.name, in.Left(), in.Err())
			}
		}
	})
}
