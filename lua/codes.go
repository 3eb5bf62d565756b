package lua

// The meaning of numbers in calls and replies of scripts. lib/codes.lua explains them, and has the same names for Lua: a test holds the two
// equal.

// The levels of a bucket.
const (
	NoFlows = 0 // it has the flow "" only
	Flows   = 1
	Groups  = 2 // and its flows are in groups
)

// Replies of enqueue.lua.
const (
	OneByOne = 0 // for each job
	Evenly   = 1 // for all that are alike
	EachEta  = 2 // the same, and an estimate of each departure
)

// Replies of enqueue.lua for a job.
const (
	Queued             = 1
	Scheduled          = 2
	Duplicate          = 3
	IDReused           = 4
	Limited            = 5
	Impossible         = 6
	BucketFull         = 7
	ScheduledFull      = 8
	Shed               = 9
	FlowFull           = 10
	TooManyFlows       = 11
	GroupFull          = 12
	TooManyGroups      = 13
	DeadFull           = 14
	DeadTooLarge       = 15
	FlowDisabled       = 16
	WaitTooLong        = 17
	IDTaken            = 18
	FlowScheduledFull  = 19
	GroupScheduledFull = 20
	TooManyOfCaller    = 21
	FlowMissing        = 22
	FlowLacksURL       = 23
	OverBudget         = 24
	WaitsForBudget     = 25
)

// The decision of a limit on a job; Shared is added if the shared key was asked.
const (
	Allowed      = 0
	Refused      = 1
	NeverAllowed = 2
	NotAsked     = 3
	Shared       = 4
)

// What becomes of a job: arguments of settle.lua.
const (
	Done      = 1
	Retry     = 2
	Dead      = 3
	Returned  = 4
	Held      = 5
	HeldAlone = 6
	Exhausted = 7 // dead after the last attempt, but not by the probe of a breaker, which is no attempt
	Gone      = 8 // dead, or kept if the bucket keeps jobs of disabled flows; its flow is disabled
	Dropped   = 9
	Undone    = 10 // of a job that is sent only once: its attempt failed, and its id is free again if the proxy made it
)

// What an attempt reports of the downstream: arguments of settle.lua.
const (
	SignalNone      = 0
	SignalAccepted  = 1
	SignalThrottled = 2
	SignalFailed    = 3
	SignalFailedToo = 4 // the same for another job of the request that reported it
)

// Replies of settle.lua for a job.
const (
	NotLeased     = 0
	Settled       = 1
	SettledHeld   = 2 // held although its attempt failed: the attempt was the probe of a breaker, or the job of a disabled flow is kept
	SettledBefore = 3 // its use is charged to earlier requests of its response, or was charged before
)

// Replies of settle.lua about a flow, or a breaker.
const (
	BecameDisabled = 1
	BreakerOpened  = 2
	BreakerClosed  = 3
)

// Codes in the reply of claim.lua after the jobs: a job is dead, jobs are a batch, a job charges budgets, or an earlier attempt of a job may
// have taken effect.
const (
	ClaimExpired    = 0
	ClaimTooOld     = -1
	ClaimBatch      = -2
	ClaimCharged    = -3
	ClaimOverBudget = -4
	ClaimInDoubt    = -5
)

// Why control_flow.lua changes nothing.
const (
	ListTooLong    = 1
	BudgetsOfBatch = 2
	TooManyOwn     = 3
)

// Replies of redrive.lua for a dead letter.
const (
	RedriveNone      = 0
	RedriveMoved     = 1
	RedriveFull      = 2
	RedriveThere     = 3
	RedriveFlowFull  = 4
	RedriveGroupFull = 5
	RedriveDisabled  = 6
)

// Replies of configure.lua.
const (
	ConfigureWritten     = 0
	ConfigureObeys       = 1
	ConfigureNewerSchema = 2
	ConfigureOtherFlows  = 3
	ConfigureLeft        = 4 // a bucket does not live there any more, or the index is behind
	ConfigureExists      = 5 // to a read-only process: there are settings, and they stay
)
