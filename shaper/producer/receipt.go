package producer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

// readReceipts reads the reply of enqueue.lua: one for all jobs that were alike, or one for each.
func readReceipts(b *producerBucket, q *scriptCall, r *lua.Reader) error {
	batch, limits := q.entries, q.set.limits
	if len(batch) == 0 {
		return nil
	}
	now, how := r.Int(), r.Int()
	if how == lua.OneByOne {
		for i, t := range batch {
			*t.receipt = readReceipt(b, limits, t, now, r)
			switch {
			case t.receipt.Duplicate && !q.again:
				refuseEnded(b, t.receipt)
			case strings.HasPrefix(t.job.ID, shaper.ProxyID): // sent again: it exists because of the send whose reply was lost
				t.receipt.Duplicate = false
			}
			switch refusal := t.receipt.Refusal; {
			case r.Err() != nil:
			case refusal == nil:
				b.refusals.forget(q.callers[i])
			case refusal.Reason == shaper.ReasonLimit:
				b.refusals.remember(q.set, q.callers[i], max(t.job.Cost, 1), q.start, t.receipt)
			}
		}
		return r.Err()
	}
	flows := make([]departures, q.flows)
	for i := range flows {
		flows[i] = departures{position: r.Int(), eta: r.Int(), interval: float64(r.Int())}
		flows[i].interval = float64(r.Int()) / flows[i].interval
	}
	decisions := make([]admission.Decision, 0, len(limits))
	for _, limit := range limits {
		if remaining, reset := r.Int(), r.Int(); remaining >= 0 {
			decisions = append(decisions, limit.For(batch[0].job.Identity.Tier).Decide(0, remaining, 0, reset))
		}
	}
	if r.Err() != nil {
		return r.Err()
	}
	b.refusals.forget(q.callers[0]) // they are alike
	for i, t := range batch {
		of := &flows[q.traits[i].flow-1]
		*t.receipt = shaper.Receipt{
			ID: t.job.ID, Bucket: b.Name, Flow: t.job.Flow, Group: t.job.Group, State: shaper.StateQueued, Position: of.position, Decisions: decisions,
		}
		eta := max(of.eta+int64(of.later), now) // none departs before that "now"
		if how == lua.EachEta {
			eta = r.Int()
		}
		if of.eta > 0 && eta > 0 {
			t.receipt.ETA = time.UnixMicro(eta)
		}
		of.position, of.later = of.position+1, of.later+of.interval
	}
	return r.Err()
}

// departures estimates when the next job of a flow departs, for jobs that are alike.
type departures struct {
	position        int64
	eta             int64   // of the first job, 0 if unknown
	interval, later float64 // microseconds between two jobs, and from the first job to this one
}

func readReceipt(b *producerBucket, limits []limitArgs, t *entry, now int64, r *lua.Reader) shaper.Receipt {
	code, position := r.Int(), int64(0)
	var budget string
	if code == lua.OverBudget || code == lua.WaitsForBudget {
		budget = r.Text()
	} else {
		position = r.Int()
	}
	eta, wait := r.Int(), r.Int()
	receipt := shaper.Receipt{ID: t.job.ID, Bucket: b.Name, Flow: t.job.Flow, Group: t.job.Group}
	for _, limit := range limits {
		verdict, remaining, retry, reset := r.Int(), r.Int(), r.Int(), r.Int()
		if admission.Asked(verdict) {
			receipt.Decisions = append(receipt.Decisions, limit.For(t.job.Identity.Tier).Decide(verdict, remaining, retry, reset))
		}
	}
	switch code {
	case lua.OverBudget:
		receipt.Refusal = overBudget(b, t, budget, eta)
	case lua.WaitsForBudget:
		receipt.Refusal = refuse(b, t, code, lua.Microseconds(wait), receipt.Decisions, 0, eta)
		receipt.Refusal.Detail = heldByBudget(b, t, budget, receipt.Refusal)
	case lua.Queued:
		receipt.State, receipt.Position = shaper.StateQueued, position
	case lua.Scheduled:
		receipt.State = shaper.StateScheduled
	case lua.Duplicate:
		// An id that this call generated can only exist because the call was sent again after a lost reply.
		receipt.State, receipt.Duplicate = codec.StateOf(position), !t.generated
		receipt.ETA = time.UnixMicro(now)
	default:
		receipt.Refusal = refuse(b, t, code, lua.Microseconds(wait), receipt.Decisions, position, eta)
	}
	if receipt.Refusal == nil && code != lua.Duplicate && eta > 0 {
		receipt.ETA = time.UnixMicro(eta)
	}
	return receipt
}

// undelivered are the states of a job that ended and that no dispatcher will send any more.
var undelivered = []shaper.State{shaper.StateDead, shaper.StateCancelled, shaper.StateDropped}

// refuseEnded refuses a duplicate of a job that ended undelivered: a receipt that admits it would promise a delivery that never happens. It is not
// used for a batch that is sent again, because its job may have ended since the send whose reply was lost.
func refuseEnded(b *producerBucket, receipt *shaper.Receipt) {
	if !slices.Contains(undelivered, receipt.State) {
		return
	}
	is, next := "was "+string(receipt.State), "use another id"
	if receipt.State == shaper.StateDead {
		is, next = "is a dead letter", "redrive it, or use another id"
	}
	receipt.Duplicate, receipt.ETA = false, time.Time{}
	receipt.Refusal = &shaper.Refusal{
		Reason: shaper.ReasonIDEnded,
		Detail: fmt.Sprintf("job %q of bucket %q %s and will not be delivered: %s", receipt.ID, b.Name, is, next),
	}
}

// keepOwnDuplicates makes duplicates again of refusals for an id that this very call has
// admitted: the same id stood twice in the call, and the first job ended between two batches.
func keepOwnDuplicates(receipts []shaper.Receipt) {
	for i := range receipts {
		ended := &receipts[i]
		if ended.Refusal == nil || ended.Refusal.Reason != shaper.ReasonIDEnded {
			continue
		}
		if slices.ContainsFunc(receipts, func(r shaper.Receipt) bool {
			return r.Bucket == ended.Bucket && r.ID == ended.ID && r.Refusal == nil && !r.Duplicate && r.State != ""
		}) {
			ended.Refusal, ended.Duplicate = nil, true
		}
	}
}

// missing returns the refusal of a job whose identity lacks what a limit needs.
func missing(err error) *shaper.Refusal {
	refusal := &shaper.Refusal{Reason: shaper.ReasonIdentity, Detail: err.Error()}
	if e, ok := errors.AsType[*admission.MissingIdentityError](err); ok {
		refusal.Limits = []string{e.Limit}
	}
	return refusal
}

// refuse returns a refusal. If the bucket or the flow is full, held is the number of its jobs and bound the number at which it refuses a job of this
// priority. If the bucket has too many flows, both count flows. There is no wait if the bucket or the flow is paused.
func refuse(b *producerBucket, t *entry, code int64, wait time.Duration, decisions []admission.Decision, held, bound int64) *shaper.Refusal {
	r := &refused{b: b, t: t, code: code, held: held, bound: bound}
	refusal := &shaper.Refusal{Reason: codec.Refusals[code], RetryAfter: max(wait, -wait)}
	for _, d := range decisions {
		if !d.Allowed && (d.Impossible || code == lua.Limited) {
			r.by, refusal.Limits = append(r.by, d), append(refusal.Limits, d.Limit)
		}
	}
	b.spread(t, refusal, r.by)
	if r.wait = wait + refusal.Spread; wait < 0 {
		r.wait = wait
	}
	r.next = "retry in " + roundUp(r.wait).String()
	if wait == 0 {
		r.next = "it is paused, and nothing leaves until it is resumed: resume it"
	}
	if b.Settings.Load().Callbacks.Bucket != "" {
		r.counted = ", with the callbacks that wait"
	}
	refusal.Detail = r.detail()
	return refusal
}

// refused is a job that did not get in, and why.
type refused struct {
	b           *producerBucket
	t           *entry
	code        int64
	wait        time.Duration
	by          []admission.Decision
	held, bound int64
	next        string // the advice
	counted     string // text for what else counts, such as callbacks
}

// detail is the sentence for people.
func (r *refused) detail() string {
	b, t := r.b, r.t
	switch r.code {
	case lua.IDReused:
		return fmt.Sprintf("id %q belongs to another job of bucket %q, with another payload, target, delay or other field: use a new id", t.job.ID, b.Name)
	case lua.IDTaken:
		return fmt.Sprintf("id %q of bucket %q belongs to another caller's job: use another id, or send an Idempotency-Key, which is each caller's own", t.job.ID, b.Name)
	case lua.Impossible:
		return admission.ImpossibleText(max(t.job.Cost, 1), r.by...)
	case lua.Limited:
		return admission.ExceededText(r.wait, r.by...)
	case lua.BucketFull:
		return fmt.Sprintf("bucket %q is full (%d/%d%s): %s or raise capacity", b.Name, r.held, r.bound, r.counted, r.next)
	case lua.Shed:
		priority := cmp.Or(t.job.Priority, shaper.PriorityNormal)
		return fmt.Sprintf("bucket %q is too full for jobs of priority %s (it has %d%s, and takes them up to %d): %s, or raise capacity or shed.%s",
			b.Name, priority, r.held, r.counted, r.bound, r.next, priority)
	case lua.WaitTooLong:
		return fmt.Sprintf("the job would have to wait for more than %s in bucket %q, with %d ahead of it: %s", t.job.MaxWait.Round(10*time.Millisecond), b.Name, r.held, r.next)
	case lua.ScheduledFull:
		return fmt.Sprintf("bucket %q holds %d of at most %d jobs for later already: %s or raise scheduled_capacity",
			b.Name, r.held, r.bound, r.next)
	case lua.DeadFull, lua.DeadTooLarge:
		return deadFullDetail(b.Name, t.job.Caller, r.code, r.wait, r.held, r.bound)
	}
	return r.flowDetail()
}

// flowDetail explains a refusal by a flow or a group.
func (r *refused) flowDetail() string {
	b, t := r.b, r.t
	switch r.code {
	case lua.FlowScheduledFull:
		return fmt.Sprintf("flow %q of bucket %q holds %d of at most %d jobs for later already: %s or raise flow.scheduled_capacity, which is flow.capacity where it is not set",
			t.job.Flow, b.Name, r.held, r.bound, r.next)
	case lua.GroupScheduledFull:
		return fmt.Sprintf("group %q of bucket %q holds %d of at most %d jobs for later already: %s or raise group.scheduled_capacity, which is group.capacity where it is not set",
			t.job.Group, b.Name, r.held, r.bound, r.next)
	case lua.FlowFull:
		return fmt.Sprintf("flow %q of bucket %q is full (%d/%d%s): %s or raise flow.capacity", t.job.Flow, b.Name, r.held, r.bound, r.counted, r.next)
	case lua.FlowDisabled:
		return fmt.Sprintf("flow %q of bucket %q is %s and takes no jobs: see why with `dispatcher flow show`, and enable it with `dispatcher flow enable` once its receiver works",
			t.job.Flow, b.Name, &shaper.Disabled{Since: time.UnixMicro(r.held)})
	case lua.FlowMissing:
		return fmt.Sprintf("bucket %q has no flow %q%s, and takes jobs only of flows that exist (flow.must_exist): correct the name, or make the flow with `dispatcher flow set --create`",
			b.Name, t.job.Flow, inGroup(b, t))
	case lua.FlowLacksURL:
		return fmt.Sprintf("flow %q%s of bucket %q has no URL, nor has the bucket, and the job names none: give the flow one with `dispatcher flow set --url`",
			t.job.Flow, inGroup(b, t), b.Name)
	case lua.GroupFull:
		return fmt.Sprintf("group %q of bucket %q is full (%d/%d%s): %s or raise group.capacity", t.job.Group, b.Name, r.held, r.bound, r.counted, r.next)
	case lua.TooManyGroups:
		return fmt.Sprintf("bucket %q has %d groups already, with at most %d flows, and %q would be another one: %s or raise flow.max_flows",
			b.Name, r.held, r.bound, t.job.Group, r.next)
	case lua.TooManyFlows:
		return fmt.Sprintf("bucket %q has %d of at most %d flows already, and %q would be another one: %s or raise flow.max_flows",
			b.Name, r.held, r.bound, t.job.Flow, r.next)
	case lua.TooManyOfCaller:
		return fmt.Sprintf("caller %q has made %d flows of bucket %q or more, about as many as it may, and %q would be another one: %s or raise flow.max_per_caller, which is half of flow.max_flows where it is not set",
			t.job.Caller, r.held, b.Name, t.job.Flow, r.next)
	}
	return ""
}

// inGroup names the group of a job's flow, where there are groups.
func inGroup(b *producerBucket, t *entry) string {
	if b.Levels() != codec.LevelsGroups {
		return ""
	}
	return fmt.Sprintf(" in group %q", t.job.Group)
}

// deadFullDetail explains a refusal by too many dead letters, or by too many bytes of them. A
// negative wait is a guess.
func deadFullDetail(bucket, caller string, code int64, wait time.Duration, held, bound int64) string {
	of, setting := "dead letters", "dead_capacity"
	if code == lua.DeadTooLarge {
		of, setting = "bytes of dead letters", "dead_bytes"
	}
	next := "retry in " + roundUp(wait).String() + ", when dead_retention has ended for enough of them"
	if wait < 0 {
		next = "it is not known when there is room, so retry in " + roundUp(-wait).String() + " to see"
	}
	whose := ""
	if caller != "" { // others may be below their share
		whose = " of this caller"
	}
	return fmt.Sprintf("bucket %q takes no jobs%s, as it has too many %s (%d/%d): redrive or drop some, or raise %s; %s",
		bucket, whose, of, held, bound, setting, next)
}
