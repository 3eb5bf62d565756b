package shaper

// Event is a kind of event of a bucket that its operators may want to hear of. A [Bucket] says which ones are noted, and
// a dispatcher tells its hooks of them.
type Event string

// The kinds of events.
const (
	EventJobDead         Event = "job.dead"            // a job became a dead letter
	EventFlowDisabled    Event = "flow.disabled"       // see Disabled
	EventFlowRecovered   Event = "flow.recovered"      // a breaker closed, of a flow or of its bucket or pool; an operator released that of a flow or bucket; or enabled a flow
	EventBreakerOpen     Event = "breaker.open"        // of a flow, or of its bucket or pool
	EventBucketFull      Event = "bucket.full"         // a job was refused because the bucket is full, or has too many dead letters
	EventBucketPaused    Event = "bucket.paused"       // by an operator
	EventDeadLetters     Event = "bucket.dead_letters" // there are more than Bucket.DeadWarn; told again once they were fewer
	EventOperatorChanged Event = "operator.changed"    // an operation of the API or the command line changed something of the bucket: see package audit
	EventWindowClosed    Event = "window.closed"       // a drain window has closed: how many jobs were sent in it, and why others are left. Once for each window
	EventFinishLate      Event = "finish.late"         // jobs will be left at the time by which all are to have left: see schedule.Drain
)

// Events lists all kinds.
func Events() []Event {
	return []Event{EventJobDead, EventFlowDisabled, EventFlowRecovered, EventBreakerOpen, EventBucketFull, EventBucketPaused, EventDeadLetters, EventFinishLate, EventWindowClosed, EventOperatorChanged}
}
