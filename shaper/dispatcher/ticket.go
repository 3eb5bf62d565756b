package dispatcher

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// ticket is what a process without the configuration needs to start and settle a lease: the names of the job, the lease, and the bucket's settings at
// the hand-over. Times are microseconds.
type ticket struct {
	Bucket      string          `json:"bucket"`
	FirstName   string          `json:"first_name,omitempty"` // of a bucket that was renamed
	Pool        string          `json:"pool,omitempty"`
	Levels      int             `json:"levels,omitempty"`
	ID          string          `json:"id"`
	Flow        string          `json:"flow,omitempty"`
	Group       string          `json:"group,omitempty"`
	Mark        string          `json:"mark"`
	Epoch       int64           `json:"epoch"`
	Claim       string          `json:"claim"`
	ClaimedAt   int64           `json:"claimed_at"`
	Charged     string          `json:"charged,omitempty"` // to budgets, as claim.lua returned it
	Counted     string          `json:"counted,omitempty"` // the part of it that metrics count as reserved
	Number      int             `json:"number"`
	Attempts    int             `json:"attempts,omitempty"`
	MaxAttempts int             `json:"max_attempts"`
	Enqueued    int64           `json:"enqueued,omitempty"`
	Expires     int64           `json:"expires,omitempty"`
	Once        bool            `json:"once,omitempty"`
	Waiter      string          `json:"waiter,omitempty"`
	Sender      string          `json:"sender,omitempty"`   // the channel of the process that sends the job; if it is set, so are the next six
	Slot        int64           `json:"slot,omitempty"`     // by the clock of Redis
	Ahead       int64           `json:"ahead,omitempty"`    // how far ahead the slot was when the ticket was sent
	Wake        int64           `json:"wake,omitempty"`     // how late that process may wake for the slot
	Valid       int64           `json:"valid,omitempty"`    // how late it may start the job
	Lasts       int64           `json:"lasts,omitempty"`    // how late the job may depart
	Every       int64           `json:"every,omitempty"`    // between two slots of the bucket
	Callback    string          `json:"callback,omitempty"` // the first line of its body, if a callback is due
	LastChance  bool            `json:"last_chance,omitempty"`
	Lease       int64           `json:"lease"`
	MinBackoff  int64           `json:"min_backoff"`
	MaxBackoff  int64           `json:"max_backoff"`
	Schedule    []time.Duration `json:"schedule,omitempty"` // nanoseconds
	MaxHold     int64           `json:"max_hold,omitempty"`
}

// ticketOf returns the text of a job's ticket.
func (c *bucketConn) ticketOf(job *leased) string {
	settings := c.Settings.Load()
	t := ticket{
		Bucket: c.Name, FirstName: firstNameOf(c.Bucket), Pool: c.Keys.Pool, Levels: c.Levels(), ID: job.ID, Flow: job.Flow, Group: job.Group, Mark: job.mark,
		Epoch: job.epoch, Claim: job.claim, ClaimedAt: job.claimedAt, Charged: job.charged, Counted: job.counted.String(), Number: job.Number, Attempts: job.attempts, MaxAttempts: job.maxAttempts,
		Expires: job.expires.Microseconds(), Once: job.Once, Waiter: job.waiter, Callback: job.callback, LastChance: job.lastChance, Lease: c.lease.Microseconds(),
		MinBackoff: settings.Retry.MinBackoff.Microseconds(), MaxBackoff: settings.Retry.MaxBackoff.Microseconds(),
		Schedule: settings.Retry.Schedule, MaxHold: settings.Adapt.MaxHold.Microseconds(),
	}
	if !job.Enqueued.IsZero() {
		t.Enqueued = job.Enqueued.UnixMicro()
	}
	if job.isSelfDispatched() {
		t.Sender, t.Slot, t.Ahead = job.sender, c.clock.redis(job.slot).UnixMicro(), time.Until(job.slot).Microseconds()
		t.Wake, t.Valid = job.wakeLimit.Microseconds(), job.ticketValidFor().Microseconds()
		t.Lasts, t.Every = job.validFor().Microseconds(), c.departures.every().Microseconds()
	}
	text, err := json.Marshal(t)
	if err != nil {
		return "" // texts and numbers always marshal
	}
	return string(text)
}

// firstNameOf returns the name that the keys of a bucket have if it differs from the bucket's name, else "".
func firstNameOf(b *store.Bucket) string {
	if b.Keys.Name == b.Name {
		return ""
	}
	return b.Keys.Name
}

// errNoTicket says that a text was not made by a dispatcher, or by a newer one.
var errNoTicket = errors.New("is not a ticket of a Tundish dispatcher, or not one that this version reads")

// readTicket parses the text of a ticket. It refuses names that no bucket can have.
func readTicket(text string) (*ticket, error) {
	t := &ticket{}
	if err := json.Unmarshal([]byte(text), t); err != nil {
		return nil, fmt.Errorf("the lease of the task %w: %w", errNoTicket, err)
	}
	lease := t.lease()
	if !admission.ValidName(t.Bucket) || t.FirstName != "" && !admission.ValidName(t.FirstName) || t.Pool != "" && !admission.ValidName(t.Pool) || !shaper.ValidID(t.ID) ||
		t.Levels < codec.LevelsNone || t.Levels > codec.LevelsGroups || t.Epoch < 1 || (t.Sender == "") != (t.Slot == 0) || t.Wake < 0 || t.Valid < 0 || t.Lasts < 0 || t.Every < 0 || t.Claim == "" || lease < time.Second || lease > time.Hour {
		return nil, fmt.Errorf("the lease of the task %w", errNoTicket)
	}
	return t, nil
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

func (t *ticket) lease() time.Duration { return micros(t.Lease) }

// late returns how long after its slot a process with this round trip may start and send the job. A process farther from Redis than the dispatcher
// may be late by its longer way. All of its jobs are equally late, so they do not bunch.
func (t *ticket) late(trip time.Duration) time.Duration {
	return min(micros(t.Wake)+max(handOver(trip)-micros(t.Ahead), 0), micros(t.Valid))
}

// settings returns the settings that settle an outcome.
func (t *ticket) settings() *shaper.Bucket {
	return &shaper.Bucket{
		Name:  t.Bucket,
		Retry: shaper.RetryPolicy{MinBackoff: micros(t.MinBackoff), MaxBackoff: micros(t.MaxBackoff), Schedule: t.Schedule},
		Adapt: shaper.Adapt{MaxHold: micros(t.MaxHold)},
	}
}

// bucket returns the bucket for a process without its configuration.
func (t *ticket) bucket() *store.Bucket {
	first := cmp.Or(t.FirstName, t.Bucket)
	return store.SettleOnly(t.settings(), store.TaggedKeys(cmp.Or(t.Pool, first), first).As(t.Levels))
}

// leased returns the job as this process settles it, under the claim of its start.
func (t *ticket) leased(claim string) *leased {
	reserved := t.Charged[strings.LastIndexByte(t.Charged, ' ')+1:]
	job := &leased{
		Attempt: shaper.Attempt{
			Bucket: t.Bucket, ID: t.ID, Flow: t.Flow, Group: t.Group, Number: t.Number, Epoch: t.Epoch, Enqueued: codec.InstantOf(t.Enqueued),
			Reserved: shaper.ParseUnits(reserved), Caller: codec.OwnerOf(t.Mark).Mark, Once: t.Once,
		},
		mark: t.Mark, epoch: t.Epoch, claim: claim, claimedAt: t.ClaimedAt, charged: t.Charged, counted: shaper.ParseUnits(t.Counted), attempts: t.Attempts, maxAttempts: t.MaxAttempts,
		expires: micros(t.Expires), waiter: t.Waiter, sender: t.Sender, callback: t.Callback, lastChance: t.LastChance, ended: make(chan struct{}),
	}
	return job
}
