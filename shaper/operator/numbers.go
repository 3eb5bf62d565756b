package operator

import (
	"time"
)

// BucketNumbers are the plain numbers of a bucket, each described once. The tag lua is its name in the reply of the script, json its member in the
// API, and gauge its metric, after "tundish_", with its help; "positive" leaves the metric out if the number is 0.
type BucketNumbers struct {
	Revision          int64 `lua:"revision" json:"revision"`
	Burst             int64 `lua:"burst" json:"burst,omitempty"`
	Capacity          int64 `lua:"capacity" json:"capacity,omitempty" gauge:"bucket_capacity" help:"Unfinished jobs that the bucket holds at most."`
	ScheduledCapacity int64 `lua:"scheduled_capacity" json:"scheduled_capacity"`

	// Requests in flight at most.
	MaxInFlight int64 `lua:"max_in_flight" json:"max_in_flight,omitempty"`

	// Jobs that count against capacity.
	Unfinished int64 `lua:"unfinished" json:"unfinished" gauge:"bucket_depth" help:"Unfinished jobs: waiting, in flight, retrying."`

	// Of a bucket with flows, delayed jobs and retries are among them.
	Waiting int64 `lua:"waiting" json:"waiting"`

	// Delayed jobs and retries. Of a bucket with flows always 0, as they are not counted apart.
	Later int64 `lua:"later" json:"later" gauge:"bucket_later_jobs" help:"Delayed jobs and retries that wait for their time. Of a bucket with flows 0: they are among those that wait."`

	// Jobs that count against scheduled_capacity.
	Scheduled int64 `lua:"scheduled" json:"scheduled" gauge:"bucket_scheduled_jobs" help:"Jobs that came with a delay and wait for their time. They are not part of bucket_depth."`

	// Jobs in flight.
	InFlight int64 `lua:"in_flight" json:"in_flight" gauge:"bucket_in_flight_jobs" help:"Jobs leased to dispatchers."`
	Requests int64 `lua:"requests" json:"-" gauge:"bucket_in_flight_requests" help:"Requests in flight: fewer than jobs, where there are batches."`

	// Dead letters.
	Dead       int64 `lua:"dead" json:"dead" gauge:"bucket_dead_letters" help:"Dead letters kept."`
	Remembered int64 `lua:"remembered" json:"remembered_ids"` // ids of settled jobs

	// Ids that were forgotten before their dedupe window ended.
	Forgotten int64 `lua:"forgotten" json:"forgotten_ids" gauge:"bucket_forgotten_ids" help:"Ids of settled jobs forgotten before their dedupe window ended."`

	// All jobs ever dropped by purges.
	Purged int64 `lua:"purged" json:"purged"`

	// Jobs that a purge has moved out and not removed yet. Absent if there are none.
	Purging int64 `lua:"purging" json:"purging,omitempty" gauge:"bucket_purging_jobs" help:"Jobs that a purge has moved out and not removed yet."`

	// The bytes of dead letters: their ids, payloads, headers and last responses.
	DeadBytes int64 `lua:"dead_bytes" json:"dead_bytes" gauge:"bucket_dead_letters_bytes" help:"Bytes of the dead letters kept."`

	// From this many dead letters on, new jobs are refused (429 `dead-full`) or the oldest dead letters are dropped: see when_dead_full. Jobs in the
	// bucket may exceed it.
	DeadCapacity int64 `lua:"dead_capacity" json:"dead_capacity,omitempty" gauge:"bucket_dead_letters_capacity,positive" help:"Dead letters from which on the bucket refuses jobs, or drops the oldest."`

	// The same for their bytes. Absent without such a bound.
	DeadMaxBytes int64 `lua:"dead_max_bytes" json:"dead_capacity_bytes,omitempty" gauge:"bucket_dead_letters_capacity_bytes,positive" help:"Bytes of dead letters from which on the same happens. None without such a bound."`

	// Above this many dead letters operators are warned. Absent without such a number.
	DeadWarn         int64 `lua:"dead_warn" json:"dead_warn,omitempty" gauge:"bucket_dead_letters_warn,positive" help:"Dead letters above which operators are notified. None without such a number."`
	DeadDroppedOld   int64 `lua:"dead_dropped_old" json:"-"`   // ever, because their retention had ended
	DeadDroppedExtra int64 `lua:"dead_dropped_extra" json:"-"` // ever, because there were too many

	Callbacks     int64 `lua:"callbacks" json:"-" gauge:"bucket_callbacks" help:"Callbacks that wait for the bucket that delivers them. They count against the capacity, as bucket_depth does."` // they count against Capacity, in addition to Unfinished
	EventsDropped int64 `lua:"events_dropped" json:"-"`                                                                                                                                          // events that were dropped before a hook got them, ever: too many waited

	Flows     int64 `lua:"flows" json:"-"`      // that have jobs, or had some so recently that their pace still counts
	FlowsWait int64 `lua:"flows_wait" json:"-"` // that are in the turn queue: they have something to send, now or later; with groups: 0, see GroupsWait

	Groups     int64 `lua:"groups" json:"-"`      // as Flows
	GroupsWait int64 `lua:"groups_wait" json:"-"` // that are in the turn queue of groups

	// FlowsHeld, FlowsOpen and FlowsHalfOpen are how many flows their downstream holds, and how many have an open or a half-open circuit breaker.
	// Dispatchers count them about every 30 seconds.
	FlowsHeld     int64 `lua:"flows_held" json:"-"`
	FlowsOpen     int64 `lua:"flows_open" json:"-"`
	FlowsHalfOpen int64 `lua:"flows_half_open" json:"-"`
	FlowsDisabled int64 `lua:"flows_disabled" json:"-"` // that send nothing and take no jobs, until an operator enables them
}

// KeptResults counts the results that a bucket keeps, with their bounds. If results or bytes run short, the flow with the most of them drops its
// oldest ones. All fields are zero for a bucket without a retention.
type KeptResults struct {
	Kept      int64         `lua:"results"`
	Bytes     int64         `lua:"result_bytes"`
	Oldest    time.Time     `lua:"oldest_result"`   // when the oldest one was kept, by the clock of Redis; zero: there is none
	Dropped   int64         `lua:"results_dropped"` // by the bounds, ever
	Max       int64         `lua:"results_max"`
	MaxBytes  int64         `lua:"results_max_bytes"`
	Retention time.Duration `lua:"result_retention"`
}

// IsShort reports whether the bounds let results end before their retention: one is full, and the oldest result is younger.
func (k KeptResults) IsShort(now time.Time) bool {
	return k.Retention > 0 && k.Dropped > 0 && k.Kept > 0 && now.Sub(k.Oldest) < k.Retention-k.Retention/10 && (k.Kept*10 >= k.Max*9 || k.Bytes*10 >= k.MaxBytes*9)
}
