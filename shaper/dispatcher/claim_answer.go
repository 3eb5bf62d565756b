package dispatcher

import (
	"fmt"
	"time"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

// readLeases parses the jobs of a claim: each job, then the differences of jobs that were claimed before, then dead letters.
func (c *claimer) readLeases(r *lua.Reader, claimID string, now int64) ([]*leased, error) {
	jobs := make([]*leased, 0, min(max(r.Int(), 0), maxClaim))
	for range cap(jobs) {
		job, err := c.readLease(r, claimID)
		if err != nil {
			return nil, err
		}
		job.claimedAt = now
		jobs = append(jobs, job)
	}
	for r.Left() > 0 {
		if err := c.readMore(r, jobs); err != nil {
			return nil, err
		}
	}
	if r.Err() != nil {
		return nil, fmt.Errorf("claim from bucket %q: %w", c.Name, r.Err())
	}
	return jobs, nil
}

// readMore parses one entry after the jobs in a claim's reply.
func (c *claimer) readMore(r *lua.Reader, jobs []*leased) error {
	kind := r.Int()
	if kind == lua.ClaimExpired || kind == lua.ClaimTooOld || kind == lua.ClaimOverBudget {
		c.foundDead(kind, r.Text(), r.Text(), int(r.Int()))
		return nil
	}
	first, size := kind, int64(1) // of a job that was claimed before
	if kind == lua.ClaimBatch || kind == lua.ClaimCharged || kind == lua.ClaimInDoubt {
		first = r.Int()
	}
	if kind == lua.ClaimBatch {
		size = r.Int()
	}
	if first < 1 || size < 1 || first-1+size > int64(len(jobs)) {
		return fmt.Errorf("claim from bucket %q: the answer has %d jobs and speaks of %d from number %d on", c.Name, len(jobs), size, first)
	}
	job := jobs[first-1]
	switch kind {
	case lua.ClaimBatch:
		number := r.Int()
		for _, job := range jobs[first-1 : first-1+size] {
			job.batch = number
		}
	case lua.ClaimCharged:
		times, reserved := r.Text(), r.Text()
		job.charged, job.Reserved = times+" "+reserved, shaper.ParseUnits(reserved)
		job.counted = c.budgeted(job.Reserved)
		c.store.Metrics.CountReserved(c.Name, job.counted)
	case lua.ClaimInDoubt:
		job.InDoubt = true
	default:
		epoch, number, attempts := r.Int(), r.Int(), r.Int()
		job.epoch, job.Number, job.attempts = epoch, int(number), int(attempts)
	}
	return nil
}

// budgeted returns the amounts of the units that have budgets in the bucket. A job may name other units, which are not charged.
func (c *bucketConn) budgeted(units shaper.Units) shaper.Units {
	amounts := shaper.Units{}
	for unit := range c.BudgetUnits() {
		if amount, named := units.Of(unit); named {
			amounts[unit] = amount
		}
	}
	return amounts
}

// readLease parses one job in a claim's reply.
func (c *claimer) readLease(r *lua.Reader, claimID string) (*leased, error) {
	id, slot, body := r.Text(), r.Int(), r.Text()
	var flow, settings string
	if c.HasFlows() {
		flow, settings = r.Text(), r.Text()
	}
	if r.Err() != nil {
		return nil, fmt.Errorf("claim from bucket %q: %w", c.Name, r.Err())
	}
	job, err := codec.Open(body)
	if err != nil {
		job.Mark = codec.UnknownMark
	}
	switch c.Levels() { // also of a body that cannot be parsed
	case codec.LevelsFlows:
		job.Flow = flow
	case codec.LevelsGroups:
		job.Group, job.Flow, _ = codec.SplitPath(flow)
	}
	own, unsettled := c.ownDelivery(flow, settings)
	l := &leased{
		unreadable: err, unsettled: unsettled,
		Attempt: shaper.Attempt{
			Bucket: c.Name, ID: id, Flow: job.Flow, Group: job.Group, URL: job.URL, Method: job.Method, Headers: job.Headers,
			Own: own, Payload: job.Payload, Number: 1, Caller: codec.OwnerOf(job.Mark).Mark, Enqueued: codec.InstantOf(job.Enqueued),
			AnswerBytes: c.answerBytes(job.Waiter != "" || job.Callback != "" && !job.OnlyCounted), Once: job.Once,
		},
		expires: time.Duration(job.ExpiresIn) * time.Microsecond, waiter: job.Waiter, sender: job.Sender,
		callback: job.Callback, callbackURL: job.CallbackURL, failureURL: job.FailureURL,
		slot: c.clock.local(slot), permitTTL: c.permitTTL,
		mark: job.Mark, epoch: 1, claim: claimID, maxAttempts: job.MaxAttempts,
		wakeLimit: c.wakeLate,
	}
	if l.maxAttempts == 0 {
		l.maxAttempts = c.Settings.Load().Retry.MaxAttempts
	}
	l.depart = func(time.Duration) { c.departs(l) }
	return l, nil
}

// answerBytes returns how much of the response to a job is wanted: 0 if it is not kept and no client waits for it.
func (c *claimer) answerBytes(isNeeded bool) int64 {
	settings := c.Settings.Load().Results
	if !isNeeded && settings.Retention == 0 {
		return 0
	}
	return settings.MaxBody
}

// ownDelivery returns a flow's own delivery settings from the text in a claim. A text that cannot be parsed is logged once, and the error keeps the
// job unsent: with the bucket's settings it could be sent elsewhere, or unsigned.
func (c *claimer) ownDelivery(flow, text string) (*shaper.OwnDelivery, error) {
	if text == "" {
		return nil, nil
	}
	own, isNew, err := c.own.parse(text)
	if err != nil && isNew {
		c.log.ErrorContext(c.life, "the settings of a flow cannot be read: its jobs are not sent until they are set again", "flow", flow, "error", err)
	}
	return own, err
}

// Bounds of the cache of parsed texts.
const (
	maxOwnTexts = 1024
	maxOwnBytes = 4 << 20
)

// ownDeliveries caches parsed delivery settings by their text: all jobs of a flow share an entry. A full cache is emptied. The zero value is ready;
// it is not safe for concurrent use.
type ownDeliveries struct {
	read  map[string]ownRead
	bytes int
}

type ownRead struct {
	own *shaper.OwnDelivery
	err error
}

// parse parses a text, and reports whether it was new.
func (o *ownDeliveries) parse(text string) (own *shaper.OwnDelivery, isNew bool, err error) {
	if known, ok := o.read[text]; ok {
		return known.own, false, known.err
	}
	if o.read == nil || len(o.read) == maxOwnTexts || o.bytes+len(text) > maxOwnBytes {
		o.read, o.bytes = map[string]ownRead{}, 0
	}
	own, err = codec.ParseOwnDelivery(text)
	if len(text) <= maxOwnBytes {
		o.read[text] = ownRead{own, err}
		o.bytes += len(text)
	}
	return own, true, err
}
