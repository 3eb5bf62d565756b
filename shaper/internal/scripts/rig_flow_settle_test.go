package scripts_test

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// withFlows is 1 if the bucket is configured with flows, else 0.
func (r *rig) withFlows() int {
	r.t.Helper()
	flows := must.Get(r.c.HMGet(r.ctx, r.key("settings"), "flows").Result())(r.t)
	text, _ := flows[0].(string)
	n, _ := strconv.Atoi(text) // 0 without
	return n
}

// flowOf is the flow of a job, as the caller of a script has to know it.
func (r *rig) flowOf(id string) string {
	r.t.Helper()
	flows, _ := r.flowsOf(id)
	return flows[0]
}

// flowsOf numbers the flows of jobs: which there are, and for each job which it is
// of, counted from 1.
func (r *rig) flowsOf(ids ...string) (flows []string, numbers []int) {
	r.t.Helper()
	levels := r.withFlows()
	if levels == 0 || len(ids) == 0 {
		return []string{""}, slices.Repeat([]int{1}, len(ids))
	}
	in := lua.NewReader(r.run(lua.FlowsOf, r.keys("body"), texts([]any{1 << 30, levels}, ids)...))
	for range ids {
		flow := in.Text()
		if !slices.Contains(flows, flow) {
			flows = append(flows, flow)
		}
		numbers = append(numbers, slices.Index(flows, flow)+1)
	}
	r.ok(in.Err())
	return flows, numbers
}

func texts(args []any, texts []string) []any {
	for _, text := range texts {
		args = append(args, text)
	}
	return args
}

func (r *rig) settle(outcomes ...outcome) []int64 {
	r.t.Helper()
	ids := make([]string, len(outcomes))
	for i, o := range outcomes {
		ids[i] = o.id
	}
	flows, numbers := r.flowsOf(ids...)
	var days store.FlowSet
	args := texts([]any{"tundish:wake", r.name, r.withFlows(), r.member(), len(flows)}, flows)
	for i, o := range outcomes {
		kept := 0
		if o.kept {
			kept = 1
		}
		count, used := 1, usedTexts(o, &days)
		if len(used) > 0 {
			count = -1
		}
		args = append(args, count, o.epoch, o.owner(), o.result, o.delay, o.last, o.signal, cmp.Or(o.reason, "-"), o.claimedAt, r.lineOf(o), o.head, o.body, kept, o.waiter,
			o.callback, o.id, o.mark, numbers[i])
		args = append(args, used...)
	}
	in := r.reader(lua.Settle, r.names().WithUse(r.keysOf(lua.Settle, flows...), days.Names), args...)
	settled := make([]int64, len(outcomes))
	for i := range settled {
		settled[i] = in.Int()
	}
	for in.Left() > 0 {
		what, n, reason := in.Int(), in.Int(), in.Text()
		if what == 1 {
			r.disabled = append(r.disabled, flows[n-1])
			continue
		}
		name := ""
		if n > 0 {
			name = flows[n-1]
		}
		r.breakers = append(r.breakers, fmt.Sprintf("%s %q (%s)", map[int64]string{2: "opened", 3: "closed"}[what], name, reason))
	}
	r.ok(in.Err())
	return settled
}

// usedTexts is what a job charged and used, and what it used of a model: none where it did neither.
func usedTexts(o outcome, days *store.FlowSet) []any {
	text := ""
	if o.charged != "" && o.used != "none" {
		text = o.charged + " " + cmp.Or(o.used, "=")
	}
	text += o.response
	if o.use != "" {
		text += fmt.Sprint("@", days.Number(codec.UseDay(time.UnixMicro(o.claimedAt))), " ", o.use)
	}
	if text == "" {
		return nil
	}
	return []any{text}
}

// sweep is a run of sweep.lua and of take_back.lua for what it named; the zero value
// takes leases back, counts them as crashes and compares nothing.
type sweep struct {
	none       bool // take nothing back
	pardon     bool
	elsewhere  bool // jobs run in other processes
	cursor     string
	flowCursor string
	retry      int64 // longest wait of a retry; 0 means an hour
	bound      int64
}

type swept struct {
	now, takenBack, poison, repaired int64
	cursor, flowCursor               string
	missing, unpurged                int64
}

// found is the answer of sweep.lua alone.
type found struct {
	swept
	ids    []string // leases that ran out, then retries
	flows  []string
	listed []string // flows with jobs in their lists
}

func (r *rig) find(s sweep) found {
	r.t.Helper()
	atMost := 200
	if s.none {
		atMost = 0
	}
	in := lua.NewReader(r.run(lua.Sweep, r.keysOf(lua.Sweep, ""), r.withFlows(), atMost, s.cursor, s.flowCursor, s.bound, r.member(), "tundish:wake"))
	f := found{swept: swept{now: in.Int(), repaired: in.Int(), cursor: in.Text(), flowCursor: in.Text(), missing: in.Int(), unpurged: in.Int()}}
	ids, astray, listed := in.Int()+in.Int(), in.Int(), in.Int()
	for range ids {
		f.ids = append(f.ids, in.Text())
	}
	for range astray {
		f.flows = append(f.flows, in.Text())
	}
	for range listed {
		f.listed = append(f.listed, in.Text())
	}
	for in.Left() > 0 {
		if flow := in.Text(); r.turn(flow) == 0 {
			f.flows = append(f.flows, flow)
		}
	}
	r.ok(in.Err())
	return f
}

// takeBack runs take_back.lua for jobs and, with flows, for further ones.
func (r *rig) takeBack(s sweep, ids, more []string) (takenBack, poison, repaired, missing int64) {
	r.t.Helper()
	crash := 1
	if s.elsewhere {
		crash = 2
	}
	if s.pardon {
		crash = 0
	}
	if s.retry == 0 {
		s.retry = 3600 * second
	}
	flows, numbers := r.flowsOf(ids...)
	if len(ids) == 0 && len(more) > 0 {
		flows = nil
	}
	for _, flow := range more {
		if !slices.Contains(flows, flow) {
			flows = append(flows, flow)
		}
	}
	args := texts([]any{"tundish:wake", r.name, r.withFlows(), crash, lastChance + 1, `{"cause":"poison"}`, s.retry, s.bound, r.member(), len(flows)}, flows)
	for i, id := range ids {
		args = append(args, id, numbers[i])
	}
	in := lua.NewReader(r.run(lua.TakeBack, r.keysOf(lua.TakeBack, flows...), args...))
	takenBack, poison, repaired, missing = in.Int(), in.Int(), in.Int(), in.Int()
	r.ok(in.Err())
	if int64(in.Left()) != poison {
		r.t.Errorf("%d jobs are poison, %d are named", poison, in.Left())
	}
	return takenBack, poison, repaired, missing
}

func (r *rig) sweep(s sweep) swept {
	r.t.Helper()
	f := r.find(s)
	out := f.swept
	if len(f.ids)+len(f.flows) > 0 {
		var repaired, missing int64
		out.takenBack, out.poison, repaired, missing = r.takeBack(s, f.ids, f.flows)
		out.repaired += repaired
		out.missing += missing
	}
	return out
}

func (r *rig) cancel(id, state string) int64 {
	r.t.Helper()
	flow := r.flowOf(id)
	reply := r.run(lua.Cancel, r.keysOf(lua.Cancel, flow), id, state, r.withFlows(), flow)
	code, ok := reply.(int64)
	if !ok {
		r.t.Fatalf("cancel answered %v", reply)
	}
	return code
}

// cancelDeep cancels a job of priority normal that lies beyond the reach of cancel.lua in a
// long list: its id stays there as a leftover.
func (r *rig) cancelDeep(id string) int64 {
	r.t.Helper()
	list := r.key(queueKey + r.flowOf(id))
	before := must.Get(r.c.LRange(r.ctx, list, 0, -1).Result())(r.t)
	code := r.cancel(id, "")
	r.ok(r.c.Del(r.ctx, list).Err())
	r.ok(r.c.RPush(r.ctx, list, before).Err())
	r.hset("settings", "leftovers", 1)
	return code
}

func (r *rig) redrive(ids ...string) []int64 {
	r.t.Helper()
	return r.redriveSparing(0, ids...)
}

// redriveSparing leaves one of so many places free.
func (r *rig) redriveSparing(spare int, ids ...string) []int64 {
	r.t.Helper()
	flows, numbers := r.flowsOf(ids...)
	args := texts([]any{"tundish:wake", r.name, r.withFlows(), len(flows), spare}, flows)
	for i, id := range ids {
		args = append(args, id, numbers[i])
	}
	in := r.reader(lua.Redrive, r.keysOf(lua.Redrive, flows...), args...)
	codes := make([]int64, len(ids))
	for i := range codes {
		codes[i] = in.Int()
	}
	r.ok(in.Err())
	return codes
}

// jobFlow is what inspect_job.lua says of a job's flow.
type jobFlow struct {
	paused                       int64
	note                         string
	inFlight, most, ready, quota int64
	disabled                     string
}
