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

// claim asks for up to want jobs, starts them, and returns how long to wait
// until the next claim.
func (d *bucketLoop) claim(ctx context.Context, claimID string, want int) (time.Duration, error) {
	if step := d.clock.takeJump(); step > 0 { // a sweep has seen it, or a question before a claim that failed
		d.stepped += step
		return d.pauseForStep(ctx, step), nil
	}
	if err := d.via.Join(ctx, d.Bucket); err != nil { // before the clock runs
		return 0, err
	}
	shortest, longest := d.clock.rtt()
	whole := d.horizon()
	ahead := d.idle.ahead(whole)
	lead := min(shortest/2, ahead/2) // see clock.local
	asking := time.Duration(d.questions()) * longest
	early := whole/2 + asking

	turn := turns{flows: []string{""}}
	if d.unanswered != nil { // nobody's turn now is no reason not to ask for what it got
		turn = *d.unanswered
	} else if d.HasFlows() {
		var next int64
		var err error
		if turn, next, err = d.reserve(ctx, want, ahead, longest); err != nil {
			return 0, err
		}
		if len(turn.flows)+len(turn.groups) == 0 {
			return d.idle.looked(d.isIdle(0, want, turn.slots == 0 && next > 0 && !turn.own, ahead), whole, d.untilNext(next, early)), nil
		}
		if d.Levels() == codec.LevelsGroups {
			// Workers became free during the two round trips. Without them, 256 workers 50 ms from Redis reach 80 % of
			// 1,000/s. After one round trip they are not worth that some flow gets two turns.
			want = max(want, d.free())
		}
	}
	d.unanswered = &turn
	call := d.toClaim(claimID, want, ahead, lead, turn)
	d.setUnanswered(claimID)
	start := time.Now()
	r, err := d.sendClaim(ctx, call)
	end := time.Now()
	if err != nil {
		d.link.failed(start, err, d)
		return 0, fmt.Errorf("claim from bucket %q: %w", d.Name, err)
	}
	d.unanswered = nil
	now, next := r.Int(), r.Int()
	_ = r.Int() // in flight; the collector reports it
	expired := r.Int()
	d.someDied(expired)
	lastChanceAt := r.Int() // from 1 on; 0: none
	d.rate = admission.Rate{Count: r.Int(), Per: time.Duration(r.Int()) * time.Microsecond, Unit: admission.UnitRequests}
	freeSlot := r.Int()
	steps, opening, closes := r.Int(), r.Int(), r.Int()
	d.permitTTL, d.wakeLate = d.obeyed().EffectivePermitTTL(), d.wakeLimit()
	d.clock.observe(start, end, now)
	step := d.clock.takeJump()
	d.stepped = step
	if step == 0 { // else the script compares with those of before: another dispatcher may have told it of this step
		d.steps = steps
	}
	var jobs, unusable []*leased
	var spare *leased
	var late time.Duration // of the first job when it arrived
	claimed, err := d.readLeases(r, claimID, now)
	if err != nil {
		return 0, err
	}
	for i, job := range claimed {
		job.lastChance = int64(i)+1 == lastChanceAt
		d.keepWithin(job, opening, closes)
		late = max(late, end.Sub(job.slot))
		if step > 0 || job.slot.After(end.Add(maxHorizon+stepSlack)) {
			unusable = append(unusable, job)
		} else if job.lastChance && !d.guard.take(job) {
			spare = job
		} else {
			jobs = append(jobs, job)
		}
	}
	// Permits from before a step forwards may still go out during a horizon:
	// these would come on top of them. And an answer from before a step
	// backwards, repeated after it, tells slots that come when the clock is
	// there again.
	d.hold(unusable)
	for _, job := range unusable {
		d.settle(job, shaper.Returned("clock_step"))
	}
	if spare != nil { // another bucket's claim was under way and got one too
		d.hold([]*leased{spare})
		d.settle(spare, shaper.Returned("last_chance"))
	}
	served := d.served(claimed, freeSlot)
	shift := d.link.answered(late, end.Sub(start), d.wakeLate, d.permitTTL)
	for _, job := range jobs {
		job.slot = job.slot.Add(shift)
	}
	requests := d.start(jobs)
	d.setUnanswered("") // the process knows the jobs now
	if step > 0 {
		return d.pauseForStep(ctx, step), nil
	}
	taken := next > 0 && freeSlot > now+ahead.Microseconds()
	if d.HasFlows() && (next != freeSlot || turn.own) { // it is not the bucket's rate that others and this one share, but turns that come later
		taken = false
	}
	idle := d.isIdle(max(requests, served), want, taken, ahead)
	if served > 0 && !idle {
		d.idle.mine = freeSlot
	}
	return d.idle.looked(idle, whole, d.untilNext(next, early)), nil
}

// toClaim is a claim of those whose turn it is.
func (d *bucketLoop) toClaim(claimID string, want int, ahead, lead time.Duration, turn turns) lua.Call {
	args := append([]any{
		d.dispatcher, claimID, want, ahead.Microseconds(), d.lease.Microseconds(), lead.Microseconds(),
		lastChance, d.guard.free(), expiredLast, d.Levels(), d.Keys.Member, store.WakeChannel, d.Name, d.link.bytes, d.stepped.Microseconds(), d.steps, len(turn.flows),
	}, turn.args...)
	return lua.Call{Script: lua.Claim, Keys: d.Keys.OfGroups(lua.Claim, turn.flows, turn.groups), Args: args}
}

// fetchUnanswered asks once more for the answer of the last claim, if it has not
// arrived: else the leases of its jobs would run out as those of a crash.
func (d *bucketLoop) fetchUnanswered(ctx context.Context, claimID string) {
	if d.unanswered == nil {
		return
	}
	if _, err := d.claim(ctx, claimID, 0); err != nil {
		d.log.WarnContext(ctx, "the jobs of the last claim are not known here: they are taken back when their leases end", "error", err)
	}
}
