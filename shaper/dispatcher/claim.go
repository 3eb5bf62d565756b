package dispatcher

import (
	"context"
	"fmt"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// lookAhead holds how many jobs a claim wants, and how far ahead it looks.
type lookAhead struct {
	want  int
	whole time.Duration // the horizon of a loop that serves the bucket
	ahead time.Duration // the horizon of this claim
	lead  time.Duration // see clock.local
	over  time.Duration // extra time for self-dispatched jobs, see handOver; 0: none are expected
	early time.Duration // how long before the next time in the reply the next claim is sent
	turn  turns
}

// answer is a parsed reply of claim.lua. Times are microseconds.
type answer struct {
	start, end      time.Time
	now, next       int64
	lastChance      int64         // the number, from 1 on, of the job that is on its last chance; 0: none
	freeSlot        int64         // the first slot after the jobs; 0: unknown
	opening, closes int64         // of the window; 0: there is none
	step            time.Duration // by which the clock of Redis stepped forwards
	jobs            []*leased
}

// chargedFlows is how many flows a claim names at most where departures charge budgets. With more, a script would run longer than 5 ms.
const chargedFlows = 32

// claim asks for up to want jobs, starts them, and returns how long to wait
// until the next claim.
func (c *claimer) claim(ctx context.Context, claimID string, want int) (time.Duration, error) {
	if step := c.clock.takeJump(); step > 0 { // found by a sweep, or by a call before a claim that failed
		c.stepped += step
		return c.pauseForStep(ctx, step), nil
	}
	if err := c.via.Join(ctx, c.Bucket); err != nil { // before the clock runs
		return 0, err
	}
	if c.HasFlows() && c.HasBudgets() {
		want = min(want, chargedFlows)
	}
	shortest, longest := c.clock.rtt()
	l := &lookAhead{want: want, whole: c.horizon(), turn: turns{flows: []string{""}}}
	l.ahead = c.idle.ahead(l.whole)
	if !c.selfDispatchedAt.IsZero() && time.Since(c.selfDispatchedAt) < expectsMoreFor {
		l.over, l.ahead = handOver(shortest), l.whole // an idle loop would not look that far ahead
	}
	l.lead = min(shortest/2, l.ahead/2) + min(l.over, l.ahead/2)
	l.early = l.whole/2 + time.Duration(c.Levels())*longest + l.over
	if c.unanswered != nil { // even if no flow has its turn: the claim still fetches the lost reply
		l.turn = *c.unanswered
	} else if c.HasFlows() {
		var next int64
		var err error
		if l.turn, next, err = c.reserve(ctx, want, l.ahead, longest); err != nil {
			return 0, err
		}
		if len(l.turn.flows)+len(l.turn.groups) == 0 {
			idle := c.isIdle(0, want, l.turn.slots == 0 && next > 0 && !l.turn.own, l.ahead)
			return c.idle.looked(idle, l.whole, c.untilNext(next, l.early)), nil
		}
		if c.Levels() == codec.LevelsGroups {
			// Workers became free during the two round trips. Without them, 256 workers 50 ms from Redis reach 80 % of 1,000/s. After a single round
			// trip they are too few to give some flow a second turn for.
			l.want = max(want, c.want())
		}
	}
	c.unanswered = &l.turn
	call := c.toClaim(claimID, l)
	c.held.setUnanswered(claimID, max(c.link.patience, c.store.Timeout))
	start := time.Now()
	r, err := c.sendClaim(ctx, call)
	if err != nil {
		c.link.failed(err, c.store.Timeout, c.outage.workedSince(start))
		if n := len(l.turn.flows); n > 1 && lua.IsTooLarge(err) { // nothing has run: the turns come again in a second
			c.unanswered, c.mostFlows = nil, n/2
		}
		return 0, fmt.Errorf("claim from bucket %q: %w", c.Name, err)
	}
	a := &answer{start: start, end: time.Now()}
	c.unanswered = nil
	if err := c.readAnswer(r, claimID, a); err != nil {
		return 0, err
	}
	served := c.served(a.jobs, a.freeSlot)
	requests := c.startClaimed(a, l.over > 0)
	c.held.setUnanswered("", 0) // the process holds the jobs now
	if a.step > 0 {
		return c.pauseForStep(ctx, a.step), nil
	}
	return c.untilNextClaim(l, a, max(requests, served), served > 0), nil
}

// readAnswer parses the reply of a claim.
func (c *claimer) readAnswer(r *lua.Reader, claimID string, a *answer) (err error) {
	a.now, a.next = r.Int(), r.Int()
	_ = r.Int() // in flight; the collector reports this
	c.deaths.note(r.Int())
	a.lastChance = r.Int()
	c.rate = admission.Rate{Count: r.Int(), Per: time.Duration(r.Int()) * time.Microsecond, Unit: admission.UnitRequests}
	a.freeSlot = r.Int()
	steps := r.Int()
	a.opening, a.closes = r.Int(), r.Int()
	c.permitTTL, c.wakeLate = c.obeyed().EffectivePermitTTL(), c.wakeLimit()
	c.departures.setInterval(c.interval())
	c.clock.observe(a.start, a.end, a.now)
	a.step = c.clock.takeJump()
	c.stepped = a.step
	if a.step == 0 { // otherwise the script compares with the previous steps: another dispatcher may have reported this step already
		c.steps = steps
	}
	if a.jobs, err = c.readLeases(r, claimID, a.now); err != nil {
		return err
	}
	for i, job := range a.jobs {
		job.lastChance = int64(i)+1 == a.lastChance
		c.keepWithin(job, a.opening, a.closes)
	}
	return nil
}

// startClaimed starts the jobs of a reply, and returns how many requests these are. Three kinds of jobs are returned unused:
//   - All jobs if the clock stepped. After a step forwards, permits from before it may still depart during a horizon. A repeated reply from before
//     a step backwards has slots too far in the future.
//   - One of two jobs on their last chance that two concurrent claims got.
//   - Self-dispatched jobs whose tickets would arrive too late, unless they were expected. The next claims look farther ahead, see handOver.
func (c *claimer) startClaimed(a *answer, expectsSelfDispatched bool) (requests int) {
	var late time.Duration // of the job that is latest, when the reply arrived
	shortest, _ := c.clock.rtt()
	jobs := make([]*leased, 0, len(a.jobs))
	for _, job := range a.jobs {
		late = max(late, a.end.Sub(job.slot))
		switch {
		case a.step > 0 || job.slot.After(a.end.Add(maxHorizon+stepSlack)):
			c.giveBack(job, "clock_step")
		case job.isSelfDispatched() && !expectsSelfDispatched && a.end.Add(handOver(shortest)).Sub(job.slot) > job.wakeLimit:
			c.giveBack(job, "late_start")
		case job.lastChance && !c.held.guard.take(job):
			c.giveBack(job, "last_chance")
		default:
			jobs = append(jobs, job)
		}
		if job.isSelfDispatched() {
			c.selfDispatchedAt = a.end
		}
	}
	shift := c.link.answered(late, a.end.Sub(a.start), c.wakeLate, c.permitTTL)
	for _, job := range jobs {
		job.slot, job.arrived = job.slot.Add(shift), a.end
	}
	return c.deliveries.start(jobs)
}

func (c *claimer) giveBack(job *leased, reason string) {
	c.held.hold(job)
	c.settler.settle(job, shaper.Returned(reason))
}

// untilNextClaim returns how long to wait after a claim that used this many slots.
func (c *claimer) untilNextClaim(l *lookAhead, a *answer, slots int, serves bool) time.Duration {
	taken := a.next > 0 && a.freeSlot > a.now+l.ahead.Microseconds()
	if c.HasFlows() && (a.next != a.freeSlot || l.turn.own) { // the time is a later turn of some flow, and does not show that others share the bucket's rate
		taken = false
	}
	idle := c.isIdle(slots, l.want, taken, l.ahead)
	if serves && !idle {
		c.idle.mine = a.freeSlot
	}
	return c.idle.looked(idle, l.whole, c.untilNext(a.next, l.early))
}

// toClaim returns the call of claim.lua for the reserved flows.
func (c *claimer) toClaim(claimID string, l *lookAhead) lua.Call {
	args := append([]any{
		c.dispatcher, claimID, l.want, l.ahead.Microseconds(), c.lease.Microseconds(), l.lead.Microseconds(),
		lastChance, c.held.guard.free(), expiredLast, c.Levels(), c.Keys.Member, store.WakeChannel, c.Keys.Name, c.link.bytes, c.stepped.Microseconds(), c.steps,
		c.expected(), len(l.turn.flows),
	}, l.turn.args...)
	return lua.Call{Script: lua.Claim, Keys: c.Keys.OfGroups(lua.Claim, l.turn.flows, l.turn.groups), Args: args}
}

// sendClaim sends a claim, with a longer timeout if the link needs it.
func (c *claimer) sendClaim(ctx context.Context, call lua.Call) (*lua.Reader, error) {
	s := c.via
	if c.link.patience > 0 {
		s = s.WithTimeout(ctx, call.Keys[0], c.link.patience)
	}
	return s.RunConfigured(ctx, c.Bucket, call.Script, call.Keys, call.Args...)
}

// lastFetch bounds the last call of a stop: the claim before it may have used up its timeout.
const lastFetch = time.Second

// fetchUnanswered repeats the last claim if its reply was lost. Otherwise the leases of its jobs would expire, as after a crash.
func (c *claimer) fetchUnanswered(ctx context.Context, claimID string) {
	if c.unanswered == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, max(c.link.patience, lastFetch))
	defer cancel()
	if _, err := c.claim(ctx, claimID, 0); err != nil {
		c.log.WarnContext(ctx, "the jobs of the last claim are not known here: they are taken back when their leases end", "error", err)
	}
}
