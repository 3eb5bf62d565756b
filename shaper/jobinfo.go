package shaper

import (
	"encoding/json"
	"time"
)

// Pause is the pause of a bucket.
type Pause struct {
	Since  time.Time
	By     string
	Reason string // "" if none was given
}

// LastResponse describes a job's last attempt.
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

// JobAttempt is the outcome of a delivery that did not succeed. Lost deliveries have no outcome, so they are not listed.
type JobAttempt struct {
	At     time.Time     // when it departed, by the clock of Redis; when it ended, if nothing was sent
	Number int           // of the delivery: see Attempt
	Took   time.Duration // from the departure to the outcome; 0 if nothing was sent
	Status int           // HTTP status, 0 none
	Reason string        // one word from a closed list
	Detail string        // for people, 200 bytes at most; the caller of the job may read it
	Result Result        // ResultRetry, ResultDead or ResultHeld; ResultDone for the last attempt of a done job

	Private string // Detail with the addresses that it hides, for callers that may read the bucket: see [Outcome.Private]; "" if it hides none
}

// JobInfo is the state of a job. For a settled one only ID, Bucket, Owner and State are set. The tag lua, here and in the nested types, is the name of the
// value in the reply of lua/inspect_job.lua.
type JobInfo struct {
	ID       string
	Bucket   string
	Flow     string
	Group    string
	Owner    Owner // its caller
	State    State
	Attempts int // finished deliveries
	Lost     int // other deliveries: held, lost with a dispatcher or lease, or before a redrive
	Crashes  int // how many of these were the last in a row, without an outcome between
	Returned int // claims without a departure: most of their permits were void

	// Position is how many of the current jobs depart from its flow first; -1 if it waits in no list. It is exact among the first thousand of its
	// priority, and an estimate after that.
	Position int64     `lua:"position"`
	ETA      time.Time // queued: expected departure, as if other flows sent nothing; zero while the bucket or flow is paused
	Due      time.Time // scheduled or retrying: when it may depart
	Deadline time.Time // in flight: end of the lease
	Died     time.Time // dead: when
	Enqueued time.Time

	Now         time.Time  `lua:"now"` // of Redis; zero for a settled job
	Pause       *Pause     // of its bucket; nil if it is not paused
	NextSlot    time.Time  `lua:"next_slot"`     // of its bucket
	InFlight    int64      `lua:"in_flight"`     // of its bucket
	MaxInFlight int64      `lua:"max_in_flight"` // of its bucket
	QuotaFrees  time.Time  `lua:"quota_frees"`   // when the quotas of its bucket permit a departure; zero: now
	Quotas      []QuotaUse // of its bucket
	Reserves    Units      // what it reserves of budgets, as far as it names units

	BudgetFrees time.Time `lua:"budget_frees"` // when the budgets of its bucket permit its departure; zero: now
	Budgets     []BudgetUse

	Closed bool      `lua:"closed"` // whether its bucket is closed by its drain windows: see Hours
	Opens  time.Time `lua:"opens"`  // when its bucket is next open, from now or from Due on; zero: unknown

	Downstream *Downstream // how responses have changed the pace of its bucket; nil: not

	OfFlow  *JobFlow // state of its flow; nil in a bucket without flows
	OfGroup *JobFlow // state of its group; nil in a bucket without groups
	OfPool  *JobPool // state of its bucket's pool; nil without one

	URL     string
	Method  string
	Headers map[string][]string
	Payload []byte
	Last    LastResponse

	// Ended is the result of a settled job, without the body, if its bucket keeps results and the caller asked for it.
	Ended *JobResult

	// LastAttempts are the outcomes of the last deliveries, the oldest first: up to the bucket's KeepAttempts, in 2 KiB at most. A redrive keeps
	// them. A settled job has none, unless it is done and Ended was asked for: see [JobResult.Deliveries].
	LastAttempts []JobAttempt
}

// Result returns how a dead letter ended, as far as Redis keeps that without a result: the last response, with the beginning of its body.
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

// BeforeRedrive reports whether a job is known to be a redriven dead letter, and how many deliveries came before. cause is why it was dead; with a
// cause, Last is from before the redrive. Redis does not record redrives: in a bucket that keeps no attempts, a redrive is unknown once a later
// delivery has ended.
func (j *JobInfo) BeforeRedrive() (deliveries int, cause string, redriven bool) {
	for _, a := range j.LastAttempts { // attempts since the redrive have higher numbers
		if a.Result == ResultDead && a.Number <= j.Lost {
			deliveries, redriven = a.Number, true
		}
	}
	if cause = j.Last.Cause; cause == "" || j.State == StateDead {
		return deliveries, "", redriven
	}
	return max(deliveries, j.Lost-j.Crashes), cause, true
}

// JobFlow is the state of a job's flow or group.
type JobFlow struct {
	Pause       *Pause    // nil if it is not paused
	Disabled    *Disabled // of a flow: nil if it is not disabled
	Keeps       bool      `lua:"keeps"`   // of a disabled flow: its jobs are kept, see [KeepDisabled]
	Missing     bool      `lua:"missing"` // of a flow: it must exist, and does not, see [FlowSettings.MustExist]
	InFlight    int64     `lua:"in_flight"`
	MaxInFlight int64     `lua:"max_in_flight"` // 0 if it has no bound of its own
	RateFrees   time.Time `lua:"ready"`         // when its rate permits the next departure; zero: now
	QuotaFrees  time.Time `lua:"quota_frees"`   // the same for its quotas
	Quotas      []QuotaUse
	BudgetFrees time.Time `lua:"budget_frees"` // the same for its budgets
	Budgets     []BudgetUse

	Downstream *Downstream // of a flow: how responses have changed its pace; nil: not
}

// MaxCrashes is how many consecutive crashes make a job poison. A crash is a delivery during which its process died.
const MaxCrashes = 3

// Causes of a dead letter.
const (
	CauseExhausted = "attempts-exhausted" // failed max_attempts times
	CausePermanent = "permanent"          // failed permanently
	CausePoison    = "poison"             // lost its worker three times in a row
	CauseExpired   = "expired"            // its time ran out while it waited
	CauseMaxAge    = "max-age"            // its first attempt was too long ago: see RetryPolicy

	CauseCostImpossible = "cost-impossible" // it reserves more than a budget, which was lowered after its enqueue

	CauseFlowDisabled = "flow-disabled" // it waited in a flow that was disabled
)

// Causes lists all causes of a dead letter.
func Causes() []string {
	return []string{CauseExhausted, CausePermanent, CausePoison, CauseExpired, CauseMaxAge, CauseCostImpossible, CauseFlowDisabled}
}

// JobPool is the state of the pool of a job's bucket.
type JobPool struct {
	Name        string
	InFlight    int64     `lua:"in_flight"`
	MaxInFlight int64     `lua:"max_in_flight"` // 0 if it has no bound
	RateFrees   time.Time `lua:"ready"`         // when its rate permits the next departure of any of its buckets; zero: now
	QuotaFrees  time.Time `lua:"quota_frees"`   // the same for its quotas
	Quotas      []QuotaUse
	BudgetFrees time.Time `lua:"budget_frees"` // the same for its budgets
	Budgets     []BudgetUse

	Downstream *Downstream // how responses to its buckets have changed its pace; nil: not
}
