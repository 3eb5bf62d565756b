package producer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// send enqueues one batch. It outlives the calls that wait for it: a call that
// gave up does not undo what is on its way. A batch that is too large for one call, or for this server, is sent in two halves.
func (c *Client) send(b *producerBucket, entries []*entry) (after func()) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(entries[0].call.ctx), c.store.Timeout)
	defer cancel()
	c.lookSometimes(ctx, time.Now())
	var q *scriptCall
	var r *lua.Reader
	var err, lost error
	for try := range enqueueTries {
		// Safe to send again: an id that was admitted the first time is a duplicate.
		err = b.breaker.Run(func() (err error) {
			q, r, err = c.runScript(ctx, b, entries, try > 0)
			return err
		})
		if err != nil && !redisconn.ReplyLost(err) && lost != nil {
			err = lost // the first try may have got the jobs in, whatever the response to this one is
		}
		if err == nil || !redisconn.ReplyLost(err) || ctx.Err() != nil {
			break
		}
		lost = err
	}
	if n := len(entries); n > 1 && lost == nil && lua.IsTooLarge(err) {
		first, second := c.send(b, entries[:n/2:n/2]), c.send(b, entries[n/2:])
		return func() { first(); second() }
	}
	if !redisconn.Unavailable(err) {
		b.answered.Add(1)
	}
	if err != nil {
		err = fmt.Errorf("enqueue into bucket %q: %w", b.Name, err)
		if redisconn.Unavailable(err) {
			// The jobs after this batch would wait as long again.
			entries = append(entries, b.queue.Drain()...)
		}
	}
	return func() {
		if err == nil {
			err = readReceipts(b, q, r)
			q.release()
		}
		counts := err == nil && c.store.Known(b.Name) != nil // else its series were removed
		for _, t := range entries {
			if counts {
				c.store.Metrics.CountReceipt(t.receipt)
				c.noteLimits(t.call.ctx, t)
				c.noteOverflow(t.call.ctx, t.receipt)
			}
			t.finish(err)
		}
	}
}

// runScript runs the script for a batch, which may be there already if it is sent again. It runs it once more where the bucket turns out
// not to be configured, or its limits to be others than this process knew.
func (c *Client) runScript(ctx context.Context, b *producerBucket, entries []*entry, again bool) (*scriptCall, *lua.Reader, error) {
	const tries = 7 // keys of quotas, configure, a bucket that changes its place, and limits that change meanwhile
	otherFlows := false
	for range tries {
		used, err := c.use(ctx, b)
		if err != nil {
			return nil, nil, err
		}
		if used.Levels() != b.Levels() { // the jobs are named and packed for the previous levels
			return nil, nil, fmt.Errorf("bucket %q: %w", b.Name, store.ErrAdopted)
		}
		b = used
		set, err := c.inForce(ctx, b)
		if err != nil {
			return nil, nil, err
		}
		q := newScriptCall(b, set, entries, again)
		if len(q.entries) == 0 {
			return q, nil, nil
		}
		if err := lua.CheckSize(q.keys, q.args); err != nil && len(entries) > 1 {
			return nil, nil, err
		}
		reply, err := c.store.Run(ctx, lua.Enqueue, q.keys, q.args...)
		if err != nil {
			return nil, nil, err
		}
		r := lua.NewReader(reply)
		switch status := r.Int(); {
		case r.Err() != nil:
			return nil, nil, r.Err()
		case status == enqueueNotConfigured:
			b.Configured.Store(false)
			b.force.Store(nil)
		case status == enqueueStaleLimits:
			b.Configured.Store(false) // the settings that name flows, or callbacks, may have changed with them
			b.force.CompareAndSwap(set, nil)
		case status == enqueueOtherFlows:
			// A dispatcher has given the bucket other levels.
			b.Configured.Store(false)
			otherFlows = true
		case status == enqueueWantsQuotas:
			b.quotas.Store(true)
		default:
			return q, r, nil
		}
	}
	if otherFlows {
		return nil, nil, fmt.Errorf("bucket %q: %w", b.Name, store.ErrOtherFlows)
	}
	return nil, nil, fmt.Errorf("bucket %q: %w", b.Name, store.ErrNotConfigured)
}

// Replies of enqueue.lua that decide nothing.
const (
	enqueueNotConfigured = 1
	enqueueStaleLimits   = 2
	enqueueOtherFlows    = 3
	enqueueWantsQuotas   = 5
)

// scriptCall is one run of the enqueue script: a batch with its keys and arguments.
type scriptCall struct {
	set     *limitSet
	again   bool // the batch may have been decided before, and its reply was lost
	start   time.Time
	entries []*entry // in the order of the replies
	callers []string // for each: the keys under which it counts
	traits  []traits // for each
	flows   int      // how many there are
	keys    []string
	args    []any
}

// scriptCalls are reused: new slices would be 20 % of the memory of an enqueue.
var scriptCalls = sync.Pool{New: func() any { return new(scriptCall) }}

func (q *scriptCall) release() {
	clear(q.entries)
	clear(q.callers)
	clear(q.traits)
	clear(q.keys)
	clear(q.args)
	*q = scriptCall{entries: q.entries[:0], callers: q.callers[:0], traits: q.traits[:0], keys: q.keys[:0], args: q.args[:0]}
	scriptCalls.Put(q)
}

// newScriptCall makes the script's keys and arguments. Jobs that are alike, the usual case, take fewer arguments and one decision. newScriptCall
// refuses a job if a limit needs more of its caller's identity than is known, or if the caller is known to be out of quota.
func newScriptCall(b *producerBucket, set *limitSet, batch []*entry, again bool) *scriptCall {
	q := scriptCalls.Get().(*scriptCall) //nolint:forcetypeassert // nothing else is put there
	q.set, q.again, q.start, q.keys = set, again, time.Now(), append(q.keys, b.enqueueKeys()...)
	k := keyring{b: b, set: set, fixed: len(q.keys), scriptCall: q, numbers: make(map[string]int, len(set.limits))}
	levels := b.Levels()
	var flows flowNumberer
	var given string
	for _, t := range batch {
		own, err := k.limitNumbers(&t.job)
		if err != nil {
			*t.receipt = shaper.Receipt{ID: t.job.ID, Bucket: b.Name, Flow: t.job.Flow, Group: t.job.Group, Refusal: missing(err)}
			continue
		}
		t.limits, t.counted = set.limits, k.caller
		if t.generated && !t.call.mixed {
			if receipt, ok := b.recall(set, t, q.start); ok {
				*t.receipt = receipt
				continue
			}
		}
		flow := codec.PathOf(levels, t.job.Group, t.job.Flow)
		q.entries, q.callers = append(q.entries, t), append(q.callers, k.caller)
		q.traits = append(q.traits, traits{codec.PriorityCode(t.job.Priority), flows.numberOf(flow), own})
	}
	if len(q.entries) == 0 {
		return q
	}
	alike := likeness(q.entries, q.traits)
	if again {
		alike = sentAgain[alike]
	}
	q.flows = len(flows.names)
	q.args = append(q.args, store.WakeChannel, b.Keys.Name, set.rev, len(set.limits), len(q.entries), alike, levels, len(flows.names))
	for _, flow := range flows.names {
		q.args = append(q.args, flow)
	}
	const levelsArg = 6
	if q.keys, given = b.Keys.ForEstimates(b.Keys.More(q.keys, lua.Enqueue, flows.names, nil), flows.names, b.quotas.Load()); given != "" {
		q.args[levelsArg] = strconv.Itoa(levels) + given
	}
	q.args = append(q.args, k.rules...)
	for i := range set.limits {
		q.args = append(q.args, store.BoolArg(set.limits[i].Mode == admission.Shadow))
	}
	q.appendJobs(alike)
	return q
}

// appendJobs adds the jobs to the arguments.
func (q *scriptCall) appendJobs(alike int) {
	isAlike := alike == alikeOnly || alike == alikeAndNew
	if isAlike {
		q.args = q.traits[0].appendKeys(append(q.args, q.traits[0].priority))
	}
	for i, t := range q.entries {
		codec.SetIndex(t.sealed, i+1)
		q.args = append(q.args, &t.job.ID, &t.sealed) // pointers: they need no objects of their own
		switch {
		case !isAlike:
			q.args = append(q.args, q.traits[i].priority, q.traits[i].flow)
			q.args = append(q.traits[i].appendKeys(q.args), dueArg(&t.job), max(t.job.Cost, 1), maxWaitArg(&t.job))
		case q.flows > 1:
			q.args = append(q.args, q.traits[i].flow)
		}
	}
}

// traits are properties of a job that most jobs of a batch share.
type traits struct {
	priority, flow int
	keys           []int // for each limit, the number of the key under which it counts; 0 if it does not ask
}

func (t *traits) appendKeys(args []any) []any {
	for _, key := range t.keys {
		args = append(args, key)
	}
	return args
}

// alike reports whether a job has all but the flow in common with another one.
func (t *traits) alike(other *traits) bool {
	return t.priority == other.priority && slices.Equal(t.keys, other.keys)
}

// flowNumberer numbers the flows of a batch, from 1 on.
type flowNumberer struct {
	names   []string
	numbers map[string]int // of all, once there are two
}

func (f *flowNumberer) numberOf(flow string) int {
	if len(f.names) > 0 && flow == f.names[0] { // the usual case
		return 1
	}
	if number, ok := f.numbers[flow]; ok {
		return number
	}
	f.names = append(f.names, flow)
	if len(f.names) > 1 {
		if f.numbers == nil {
			f.numbers = make(map[string]int)
		}
		f.numbers[flow] = len(f.names)
	}
	return len(f.names)
}

// keyring numbers the keys under which the limits count for the jobs of a
// batch, and adds each key to the call.
type keyring struct {
	b          *producerBucket
	set        *limitSet
	fixed      int
	scriptCall *scriptCall
	numbers    map[string]int
	rules      []any // of the keys, as the script wants them

	last   admission.Identity // the numbers of this caller are known
	known  []int
	caller string // all keys of the last, one after the other
	err    error
}

// limitNumbers returns a number for each limit, 0 where it does not ask. Jobs of one
// caller share the slice.
func (k *keyring) limitNumbers(job *shaper.Job) ([]int, error) {
	id := job.Identity
	id.Flow = job.Flow
	if k.b.Levels() == codec.LevelsGroups {
		id.Flow = codec.FlowPath(job.Group, job.Flow) // flows of two groups are two, whatever their names are
	}
	if (k.known != nil || k.err != nil) && sameIdentity(&id, &k.last) {
		return k.known, k.err
	}
	k.last, k.known, k.caller, k.err = id, make([]int, len(k.set.limits)), "", nil
	for i := range k.set.limits {
		limit := &k.set.limits[i]
		name, err := limit.Key(id)
		if err != nil {
			k.known, k.err = nil, err
			return nil, err
		}
		k.caller += name + " "
		if name == "" {
			continue
		}
		key := k.b.Keys.Limit(limit.Limit, name)
		number, ok := k.numbers[key]
		if !ok {
			more := k.b.Keys.BesideLimit(limit.Limit, limit.tierOf(id.Tier), limit.life)
			k.scriptCall.keys = append(append(k.scriptCall.keys, key), more[:]...)
			k.rules = append(k.rules, limit.argsOf(id.Tier)...)
			number = (len(k.scriptCall.keys) - k.fixed) / (1 + len(more))
			k.numbers[key] = number
		}
		k.known[i] = number
	}
	return k.known, nil
}

func sameIdentity(a, b *admission.Identity) bool {
	return a.Caller == b.Caller && a.IP == b.IP && a.Flow == b.Flow && a.Tier == b.Tier && maps.Equal(a.Headers, b.Headers)
}

// How alike the jobs of a batch are: an argument of enqueue.lua.
const (
	unlike      = 0
	alikeOnly   = 1
	alikeAndNew = 2 // and this process generated their ids
	unlikeAgain = 3 // unlike, in a batch that is sent again
)

// sentAgain is the likeness of jobs that are sent again: Redis may have them already.
var sentAgain = [...]int{unlike: unlikeAgain, alikeOnly: alikeOnly, alikeAndNew: alikeOnly}

// likeness returns how alike the jobs of a batch are. They are alike if none is delayed or costs more than 1, all have the same priority and keys,
// and no id occurs twice.
func likeness(batch []*entry, all []traits) int {
	alike := alikeAndNew
	var ids map[string]bool
	for i, t := range batch {
		job := &t.job
		if job.Cost > 1 || job.MaxWait != 0 || job.Delay != 0 || !job.NotBefore.IsZero() ||
			!all[i].alike(&all[0]) {
			return unlike
		}
		if t.generated {
			continue // ids that this process generated differ
		}
		alike = alikeOnly
		if ids[job.ID] {
			return unlike
		}
		if ids == nil {
			ids = make(map[string]bool, len(batch))
		}
		ids[job.ID] = true
	}
	return alike
}

func dueArg(job *shaper.Job) string {
	switch {
	case !job.NotBefore.IsZero():
		return fmt.Sprint(job.NotBefore.UnixMicro())
	case job.Delay > 0:
		return fmt.Sprintf("+%d", job.Delay.Microseconds())
	}
	return ""
}

// maxWaitArg returns how long a job may have to wait, in microseconds.
func maxWaitArg(job *shaper.Job) string {
	if job.MaxWait == 0 {
		return ""
	}
	return strconv.FormatInt(job.MaxWait.Microseconds(), 10)
}
