package shaper

import (
	"encoding/json"
	"time"
)

// Pause is that of a bucket.
type Pause struct {
	Since  time.Time
	By     string
	Reason string // "" if none was given
}

// LastResponse is what is known of a job's last attempt.
type LastResponse struct {
	Cause  string `json:"cause,omitempty"`  // why it is dead, one of the Cause constants
	Status int    `json:"status,omitempty"` // HTTP status, 0 none
	Reason string `json:"reason,omitempty"` // one word of a closed list
	Detail string `json:"detail,omitempty"` // for people
	Body   string `json:"body,omitempty"`   // the beginning of the answer
}

func (l LastResponse) String() string {
	if l == (LastResponse{}) {
		return ""
	}
	text, err := json.Marshal(l)
	if err != nil {
		return "" // strings and numbers always marshal
	}
	return string(text)
}

// JobAttempt is how a delivery of a job ended that is not done. Lost deliveries have no outcome and are not among them.
type JobAttempt struct {
	At     time.Time     // when it departed, by the clock of Redis; when it ended, if nothing was sent
	Number int           // of the delivery: see Attempt
	Took   time.Duration // from the departure to the outcome; 0 if nothing was sent
	Status int           // HTTP status, 0 none
	Reason string        // one word of a closed list
	Detail string        // for people, 200 bytes at most. Who enqueued the job may read it
	Result Result        // ResultRetry, ResultDead or ResultHeld; of the last one of a job that is done ResultDone

	Private string // Detail with the addresses that it hides, for those who may read the bucket: see [Outcome.Private]; "" it hides none
}

// JobInfo is what is known of a job. Of a settled one only ID, Bucket and
// State are. The tag lua, here and in what it holds, is the name of the value in the answer of lua/inspect_job.lua.
type JobInfo struct {
	ID       string
	Bucket   string
	Flow     string
	Group    string
	Owner    Owner // its caller
	State    State
	Attempts int // deliveries that ended
	Lost     int // further ones: held, or their dispatcher died or lost its lease, or they came before a redrive
	Crashes  int // of those the last ones in a row, with no outcome between
	Returned int // claims after which nothing was sent: most of their permits were void

	// Position is how many jobs that are there now leave its flow first; -1 if it waits in no list.
	// It is exact among the first thousand of its priority, and an estimate behind them.
	Position int64     `lua:"position"`
	ETA      time.Time // queued: expected departure, as if other flows sent nothing; zero while bucket or flow is paused
	Due      time.Time // scheduled or retrying: when it may depart
	Deadline time.Time // in flight: end of the lease
	Died     time.Time // dead: when
	Enqueued time.Time

	Now         time.Time  `lua:"now"` // of Redis; zero of a settled job
	Pause       *Pause     // of its bucket, nil if that runs
	NextSlot    time.Time  `lua:"next_slot"`     // of its bucket
	InFlight    int64      `lua:"in_flight"`     // of its bucket
	MaxInFlight int64      `lua:"max_in_flight"` // of its bucket
	QuotaFrees  time.Time  `lua:"quota_frees"`   // when the quotas of its bucket let a job leave; zero: at once
	Quotas      []QuotaUse // of its bucket
	Reserves    Units      // what it reserves of budgets, as far as it says so

	BudgetFrees time.Time `lua:"budget_frees"` // when the budgets of its bucket let it leave; zero: at once
	Budgets     []BudgetUse

	Closed bool      `lua:"closed"` // its bucket is, by its drain windows: see Hours
	Opens  time.Time `lua:"opens"`  // when its bucket is open, from now on or from Due on; zero: not known

	Downstream *Downstream // what the answers to its bucket have changed; nil: nothing

	OfFlow  *JobFlow // what holds for its flow; nil in a bucket without flows
	OfGroup *JobFlow // what holds for its group; nil in a bucket without groups
	OfPool  *JobPool // what holds for the pool of its bucket; nil if it is in none

	URL     string
	Method  string
	Headers map[string][]string
	Payload []byte
	Last    LastResponse

	// Ended is how a settled job ended, where its bucket keeps results and it was asked for; without the body of the answer.
	Ended *JobResult

	// LastAttempts are how the last deliveries ended, the oldest first: as many as the bucket's KeepAttempts, in 2 KiB at
	// most. A redrive keeps them. Of a settled job there are none, unless it is done and Ended was asked for: see [JobResult.Deliveries].
	LastAttempts []JobAttempt
}

// Result is how a dead letter ended, as far as Redis keeps that without a result: the last response, with the beginning of its body.
func (j *JobInfo) Result() JobResult {
	r := JobResult{
		ID: j.ID, Bucket: j.Bucket, Flow: j.Flow, Group: j.Group, Owner: j.Owner, State: StateDead, Cause: j.Last.Cause, Reason: j.Last.Reason, Detail: j.Last.Detail,
		Attempts: j.Attempts, Enqueued: j.Enqueued,
	}
	if j.Last.Status != 0 {
		r.Answer = &Answer{Status: j.Last.Status, Body: []byte(j.Last.Body), Cut: true}
	}
	return r
}

// BeforeRedrive tells of a job that was a dead letter and was put back: how many deliveries came before, and why it was dead, "" if that is
// not known any more. Of Last it reports whether it is of that time. Redis keeps no note of a redrive: where the bucket keeps no attempts, it is
// not known once a later delivery has ended.
func (j *JobInfo) BeforeRedrive() (deliveries int, cause string, redriven bool) {
	for _, a := range j.LastAttempts { // those since the redrive count as attempts, and have higher numbers
		if a.Result == ResultDead && a.Number <= j.Lost {
			deliveries, redriven = a.Number, true
		}
	}
	if cause = j.Last.Cause; cause == "" || j.State == StateDead {
		return deliveries, "", redriven
	}
	return max(deliveries, j.Lost-j.Crashes), cause, true
}

// JobFlow is what holds for the flow of a job, or for its group.
type JobFlow struct {
	Pause       *Pause    // nil if it is not paused
	Disabled    *Disabled // of a flow: nil if it is not disabled
	Keeps       bool      `lua:"keeps"`   // of a disabled flow: its jobs are kept, see [KeepDisabled]
	Missing     bool      `lua:"missing"` // of a flow: it has to exist, and does not, see [FlowSettings.MustExist]
	InFlight    int64     `lua:"in_flight"`
	MaxInFlight int64     `lua:"max_in_flight"` // 0 if it has none of its own
	RateFrees   time.Time `lua:"ready"`         // when its rate lets it depart next; zero: at once
	QuotaFrees  time.Time `lua:"quota_frees"`   // when its quotas do
	Quotas      []QuotaUse
	BudgetFrees time.Time `lua:"budget_frees"` // when its budgets do
	Budgets     []BudgetUse

	Downstream *Downstream // of a flow: what its downstream's answers have changed; nil: nothing
}

// MaxCrashes is how many crashes in a row make a job poison: deliveries of it during which its process died.
const MaxCrashes = 3

// Causes of a dead letter.
const (
	CauseExhausted = "attempts-exhausted" // failed max_attempts times
	CausePermanent = "permanent"          // failed in a way that stays
	CausePoison    = "poison"             // lost its worker three times in a row
	CauseExpired   = "expired"            // its time ran out while it waited
	CauseMaxAge    = "max-age"            // its first attempt was too long ago: see RetryPolicy

	CauseCostImpossible = "cost-impossible" // it reserves more than a budget, which was lowered since it came

	CauseFlowDisabled = "flow-disabled" // it waited in a flow that was disabled
)

// Causes lists all causes of a dead letter.
func Causes() []string {
	return []string{CauseExhausted, CausePermanent, CausePoison, CauseExpired, CauseMaxAge, CauseCostImpossible, CauseFlowDisabled}
}

// JobPool is what holds for the pool of a job's bucket.
type JobPool struct {
	Name        string
	InFlight    int64     `lua:"in_flight"`
	MaxInFlight int64     `lua:"max_in_flight"` // 0 if it has none
	RateFrees   time.Time `lua:"ready"`         // when its rate lets one of its buckets send next; zero: at once
	QuotaFrees  time.Time `lua:"quota_frees"`   // when its quotas do
	Quotas      []QuotaUse
	BudgetFrees time.Time `lua:"budget_frees"` // when its budgets do
	Budgets     []BudgetUse

	Downstream *Downstream // what the answers to its buckets have changed; nil: nothing
}
