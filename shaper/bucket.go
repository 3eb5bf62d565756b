package shaper

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/schedule"
)

// Bounds of a bucket's settings.
const (
	MaxCapacity     = 100_000_000
	MaxConcurrency  = 100_000
	MaxBurst        = 1_000_000
	MaxPermitTTL    = 10 * time.Second
	defaultInFlight = 256             // if it is unknown how long a delivery takes
	leastInFlight   = 16              // if it is known
	minPermitTTL    = 5 * time.Second // the least automatic one
	MaxDedupeWindow = 31 * 24 * time.Hour
	MaxPayloadLimit = 8 << 20

	MaxBurstTime = 366 * 24 * time.Hour // until a burst is available again; keeps the sums of the scripts exact
)

// Bucket is a bounded queue that leaks at a fixed rate: the leaky bucket. It is a description; the jobs and the pacer are in Redis.
type Bucket struct {
	Name string `setting:"name"` // matches ^[a-z0-9][a-z0-9_.-]{0,62}$

	// RenamedFrom is the first name that the bucket had, "" if it was never renamed. Its keys in Redis keep that name, so nothing moves at a
	// rename: processes with either name use the same jobs, the same pace and the same remembered ids. It has to stay as long as
	// there is the bucket, and no other bucket may have that name.
	RenamedFrom string `setting:"renamed_from"`

	// Rate spaces departures; Burst of them may leave at once after a pause.
	// In any window of length W at most Rate·W + Burst slots lie.
	Rate  admission.Rate `setting:"rate,redis=rate,change" help:"departures, such as '20/s' or 500/m"` // 1/h to 50,000/s are tested
	Burst int64          `setting:"burst,redis=burst,change" help:"'number' of departures that may leave at once after a quiet time"`

	Capacity          int64 `setting:"capacity,redis=capacity,change" help:"'number' of unfinished jobs at most"`                                // unfinished jobs (waiting, in flight, retrying) that came without a delay
	ScheduledCapacity int64 `setting:"scheduled_capacity,redis=scheduled_capacity,change" help:"'number' of jobs for later at most"`             // unfinished jobs that were enqueued with a delay, until they are redriven
	MaxInFlight       int64 `setting:"max_in_flight,redis=max_in_flight,change" help:"'number' of jobs in flight at most, over all dispatchers"` // concurrent requests (a job or a batch), over all dispatchers; 0: see [Bucket.EffectiveMaxInFlight]

	// DeliveryTimeout is how long a delivery may take, 0 if unknown. With a MaxInFlight of 0, the effective one is derived from it.
	DeliveryTimeout time.Duration `setting:"-"`

	// DeadCapacity and DeadBytes bound the dead letters that the bucket keeps: their number, and the bytes of their ids, payloads, headers and last
	// responses. A DeadCapacity of 0 is ten times Capacity, a DeadBytes of 0 is no bound. Every job of the bucket may become a dead letter, so the
	// bounds may be exceeded by the number of its jobs; WhenDeadFull says what happens then. With several callers, each one is refused above its own
	// share, so that none keeps the others out. All callers together have less than three times the bounds.
	DeadCapacity int64        `setting:"dead_capacity,redis=dead_capacity"`
	DeadBytes    int64        `setting:"dead_bytes,bytes,redis=dead_max_bytes"`
	DeadWarn     int64        `setting:"dead_warn,redis=dead_warn,change" help:"'number' of dead letters above which operators are notified; 0: none"` // see EventDeadLetters
	WhenDeadFull WhenDeadFull `setting:"when_dead_full"`

	// DeadRetention is how long a dead letter is kept before a dispatcher drops it; 0 means forever.
	DeadRetention time.Duration `setting:"dead_retention,redis=dead_retention"`

	// Quotas are up to MaxQuotas sliding windows, in addition to the rate. Any window of length Per, by the clock of Redis, has at most Count slots,
	// including retries and returned permits. Slots obey a window that is 2 % longer (at most 11 s). So the receiver counts at most Count in Per too,
	// although requests take different times to reach it. Count is at most MaxQuotaCount, Per at most MaxDedupeWindow. A new quota counts earlier
	// departures only if a previous quota recorded them.
	Quotas []admission.Rate `setting:"quotas,redis=quotas"`

	// Budgets bound what departures cost. BudgetBurst is the percentage of a budget of at most an hour that may be used at once after a quiet time:
	// 100 spreads nothing. It also holds for the budgets of flows and groups. DefaultReservation is what a job reserves of a unit that it does not
	// name, at most the budget.
	Budgets            Budgets `setting:"budgets,redis=budgets,change" help:"what departures cost at most in any window of that length, 'amounts' such as '90000 tokens/m, 2000000 tokens/d'; none: no budget"`
	BudgetBurst        int64   `setting:"budget_burst,percent,redis=budget_burst"`
	DefaultReservation int64   `setting:"default_reservation,redis=default_reservation"`
	PartBudgets        bool    `setting:"-"` // some flow or group has its own budgets; a client reads this from Redis, and the configuration's value is ignored

	// PriorityAging is how much later than a job of the next lower priority a job may be enqueued, and still depart before it. So low priority is
	// never starved: a job of priority low departs before any job enqueued more than 3·PriorityAging after it. With 0 jobs depart in the order in
	// which they were enqueued. This holds among the jobs in the lists of one flow, or of a bucket without flows. Delayed jobs and retries that are
	// due depart before them.
	PriorityAging time.Duration `setting:"priority_aging,redis=aging"`

	// Flow, if not nil, divides the bucket into flows.
	Flow *FlowSettings `setting:"flow"`

	// Group, if not nil, puts the flows into groups. It needs Flow.
	Group *GroupSettings `setting:"group,redis=group_"`

	// Pool, if not nil, holds the limits that the bucket shares with others. It cannot change while the bucket holds jobs.
	Pool *Pool `setting:"-"`

	// Weight is the bucket's share of its pool, 1 to MaxWeight. If two buckets have work, one of weight 3 gets three slots for each slot of one of
	// weight 1. A bucket without work passes its slots to the others.
	Weight int64 `setting:"weight,redis=weight"`

	Shed   Shed              `setting:"shed,optional"` // how full the bucket may be for jobs of each priority
	Limits []admission.Limit `setting:"-"`             // checked at enqueue, all or nothing

	DedupeWindow time.Duration `setting:"dedupe_window,redis=dedupe_window"`   // how long the id of a settled job is remembered
	DedupeMax    int64         `setting:"dedupe_max,redis=dedupe_max"`         // how many such ids at most
	PermitTTL    time.Duration `setting:"permit_ttl"`                          // how long after its slot a job may depart; 0: see [Bucket.EffectivePermitTTL]
	MaxPayload   int64         `setting:"max_payload,bytes,redis=max_payload"` // bytes

	Retry   RetryPolicy `setting:"retry"`
	Adapt   Adapt       `setting:"adapt"`   // how responses of the downstream change the pace
	Breaker Breaker     `setting:"breaker"` // of the scope of Adapt

	// Batch makes several jobs of a flow one request. It needs a [BatchWorker].
	Batch BatchSettings `setting:"batch,optional"`

	Results   ResultSettings `setting:",squash"` // which responses are kept
	Callbacks Callbacks      `setting:"-"`       // where outcomes are sent

	// Events are the types that are recorded for the hooks of dispatchers; without any, nothing is recorded. At most 1000 events of a type and flow
	// are kept at a time, until a dispatcher with hooks delivers them.
	Events []Event `setting:"-"`

	// Schedules enqueue jobs into the bucket at their times. They are stored with the other settings.
	Schedules []Schedule `setting:"-"`

	// Drain, if not nil, makes the bucket leak only in its delivery windows, or when an operator drains it. Calendar gives it other rates at other
	// times of day; an override of the rate takes precedence.
	Drain    *schedule.Drain `setting:"drain"`
	Calendar []CalendarLine  `setting:"calendar"`

	// Revision orders configurations: a process whose revision is lower than the bucket's in Redis obeys the settings there, and changes nothing.
	Revision int64 `setting:"-"`
}

// Shed is how full, in per cent of its capacity (1 to 100), a bucket may be before jobs of a priority are refused. That leaves room for more
// important jobs. Jobs of priority critical are accepted as long as there is room at all. Jobs scheduled for later have their own bound and are not
// shed.
type Shed struct {
	Low    int64 `setting:"low,redis=shed_low,change" help:"'percent' of the capacity at which jobs of priority low are refused"`
	Normal int64 `setting:"normal,redis=shed_normal,change" help:"the same 'percent' for priority normal"`
	High   int64 `setting:"high,redis=shed_high,change" help:"the same 'percent' for priority high"`
}

// NoShedding lets jobs of every priority fill the bucket.
var NoShedding = Shed{Low: 100, Normal: 100, High: 100}

// WhenDeadFull says what happens once a bucket has as many dead letters as it may.
type WhenDeadFull string

// The values of WhenDeadFull.
const (
	RefuseJobs     WhenDeadFull = "refuse"      // new jobs are refused ([ReasonDeadFull])
	DropOldestDead WhenDeadFull = "drop_oldest" // the oldest dead letters are dropped, within seconds, and counted
)

// MaxDeadBytes bounds DeadBytes.
const MaxDeadBytes = 1 << 40

// DefaultBucket returns the defaults. Name and Rate have none.
func DefaultBucket() Bucket {
	return Bucket{
		Burst:              1,
		Weight:             1,
		Capacity:           10_000,
		ScheduledCapacity:  10_000,
		DeadBytes:          256 << 20,
		WhenDeadFull:       RefuseJobs,
		Shed:               NoShedding,
		PriorityAging:      time.Minute,
		BudgetBurst:        DefaultBudgetBurst,
		DefaultReservation: 1,
		DedupeWindow:       time.Hour,
		DedupeMax:          1_000_000,
		MaxPayload:         256 << 10,
		Retry:              DefaultRetryPolicy(),
		Adapt:              DefaultAdapt(),
		Breaker:            DefaultBreaker(),
		Results:            DefaultResultSettings(),
	}
}

// EffectivePermitTTL returns PermitTTL. If that is 0, it returns half an interval, at least 5 s and at most 10 s: time to connect to a far receiver,
// and once more after a lost packet. A delivery that doesn't begin within 12 ms of its slot, or half an interval if that is more, returns its permit
// earlier.
func (b Bucket) EffectivePermitTTL() time.Duration {
	if b.PermitTTL != 0 {
		return b.PermitTTL
	}
	return min(max(minPermitTTL, b.Rate.Interval()/2), MaxPermitTTL)
}

// Validate reports every fault of the bucket, joined, or nil. Each begins with
// the key of the configuration.
func (b Bucket) Validate() error {
	var f faults
	f.name(b.Name)
	b.validateRename(&f)
	b.validateLeak(&f)
	b.validateBounds(&f)
	b.validateDead(&f)
	b.validateParts(&f)
	for _, errs := range [][]error{
		validateQuotas("quotas", b.Quotas), b.validateBudgets(), b.validateSchedules(), b.validatePlan(), b.Results.validate(), b.Batch.validate(), b.Callbacks.validate(b.Name),
		{b.Retry.Validate(), b.Adapt.Validate(), b.Breaker.Validate()},
	} {
		f.errs = append(f.errs, errs...)
	}
	if b.Adapt.Scope == ScopePool && b.Pool == nil {
		f.add("adapt.scope", "%q: the bucket is in no pool: want flow or bucket, or put it into one", b.Adapt.Scope)
	}
	return errors.Join(f.errs...)
}

// KeyName returns the name that the keys of the bucket have: the first one that it had.
func (b *Bucket) KeyName() string { return cmp.Or(b.RenamedFrom, b.Name) }

// validateRename checks the first name of the bucket.
func (b *Bucket) validateRename(f *faults) {
	switch {
	case b.RenamedFrom == "":
	case !admission.ValidName(b.RenamedFrom):
		f.add("renamed_from", "%q: want the first name that the bucket had, such as \"mails\"", b.RenamedFrom)
	case b.RenamedFrom == b.Name:
		f.add("renamed_from", "%q: is the name of the bucket itself: want the first name that it had, or leave it out", b.RenamedFrom)
	}
}

// validateLeak checks how fast jobs leave.
func (b *Bucket) validateLeak(f *faults) {
	if b.Rate.IsZero() {
		f.add("rate", "is missing: say how fast the bucket leaks, such as \"50/s\"")
	} else {
		f.pace(b.Rate, b.Burst)
	}
	f.inRange("burst", b.Burst, 1, MaxBurst)
	f.inRange("max_in_flight", b.MaxInFlight, 0, MaxCapacity)
	if b.DeliveryTimeout < 0 {
		f.add("timeout", "%s: want none below 0s", b.DeliveryTimeout)
	}
	if b.PriorityAging < 0 || b.PriorityAging > MaxDelay {
		f.add("priority_aging", "%s: want 0s to %s", b.PriorityAging, MaxDelay)
	}
	if b.PermitTTL != 0 && (b.PermitTTL < time.Millisecond || b.PermitTTL > MaxPermitTTL) {
		f.add("permit_ttl", "%s: want 1ms to %s, or 0s for the automatic one", b.PermitTTL, MaxPermitTTL)
	}
}

// validateBounds checks which jobs are accepted, and how many.
func (b *Bucket) validateBounds(f *faults) {
	f.inRange("capacity", b.Capacity, 1, MaxCapacity)
	f.inRange("scheduled_capacity", b.ScheduledCapacity, 0, MaxCapacity)
	f.inRange("shed.low", b.Shed.Low, 1, 100)
	f.inRange("shed.normal", b.Shed.Normal, 1, 100)
	f.inRange("shed.high", b.Shed.High, 1, 100)
	if b.Shed.Low > b.Shed.Normal || b.Shed.Normal > b.Shed.High {
		f.add("shed", "low %d, normal %d, high %d: want them in ascending order", b.Shed.Low, b.Shed.Normal, b.Shed.High)
	}
	f.inRange("dedupe_max", b.DedupeMax, 0, MaxCapacity)
	f.inRange("max_payload", b.MaxPayload, 1, MaxPayloadLimit)
	if b.DedupeWindow < 0 || b.DedupeWindow > MaxDedupeWindow {
		f.add("dedupe_window", "%s: want 0s to %s", b.DedupeWindow, MaxDedupeWindow)
	}
	names := make(map[string]bool, len(b.Limits))
	for _, limit := range b.Limits {
		if names[limit.Name] {
			f.add("limits", "%s: is given twice", limit.Name)
		}
		names[limit.Name] = true
		if err := limit.Validate(); err != nil {
			f.add("limits", "%s: %v", limit.Name, err)
		}
	}
}

// validateDead checks the settings of dead letters and events.
func (b *Bucket) validateDead(f *faults) {
	f.inRange("dead_capacity", b.DeadCapacity, 0, 10*MaxCapacity)
	f.inRange("dead_bytes", b.DeadBytes, 0, MaxDeadBytes)
	f.inRange("dead_warn", b.DeadWarn, 0, 10*MaxCapacity)
	if b.DeadRetention < 0 || b.DeadRetention > MaxDelay {
		f.add("dead_retention", "%s: want 0s (for ever) to %s", b.DeadRetention, MaxDelay)
	}
	if w := b.WhenDeadFull; w != "" && w != RefuseJobs && w != DropOldestDead {
		f.add("when_dead_full", "%q: want %s or %s", w, RefuseJobs, DropOldestDead)
	}
	for _, event := range b.Events {
		if !slices.Contains(Events(), event) {
			f.add("events", "%q: want some of %v", event, Events())
		}
	}
}

// validateParts checks the flows, the groups and the pool.
func (b *Bucket) validateParts(f *faults) {
	if b.Flow != nil {
		f.errs = append(f.errs, b.Flow.validate()...)
	}
	if b.Group != nil {
		f.errs = append(f.errs, b.Group.validate()...)
		if b.Flow == nil {
			f.add("group", "is given without flows: groups are of flows, so say in flow.key what names these")
		}
	}
	if b.Weight != 0 {
		f.inRange("weight", b.Weight, 1, MaxWeight)
	}
	if b.Pool != nil {
		f.errs = append(f.errs, b.Pool.validate("pool.")...)
		if b.Pool.Name == b.Name || b.Pool.Name == b.RenamedFrom {
			f.add("pool.name", "%q: is the name of a bucket in the pool: want another", b.Pool.Name)
		}
	}
}

// DefaultTimeout bounds a call to Redis where no other timeout is given, including resends after a lost reply.
const DefaultTimeout = 1500 * time.Millisecond

// Check names the flow and the group of a job of this bucket. It reports every fault of the job here: joined errors, each a [*FieldError]. The worker
// checks what it needs of the URL and the headers.
func (b *Bucket) Check(job *Job) (flow, group string, err error) {
	flow, flowErr := b.Flow.NameOf(job)
	group, groupErr := b.Group.NameOf(job)
	return flow, group, errors.Join(b.Callbacks.Check(b.Name, job), job.Validate(b.MaxPayload), flowErr, groupErr)
}
