package shaper

// Event is a type of event of a bucket, for its operators. A [Bucket] names the types that are recorded, and a dispatcher passes them to its hooks.
type Event string

// The types of events.
const (
	EventJobDead         Event = "job.dead"            // a job became a dead letter
	EventFlowDisabled    Event = "flow.disabled"       // see Disabled
	EventFlowRecovered   Event = "flow.recovered"      // a breaker of a flow, its bucket or its pool closed; or an operator released a flow or bucket, or enabled a flow
	EventBreakerOpen     Event = "breaker.open"        // of a flow, or of its bucket or pool
	EventBucketFull      Event = "bucket.full"         // a job was refused because the bucket is full, or has too many dead letters
	EventBucketPaused    Event = "bucket.paused"       // by an operator
	EventDeadLetters     Event = "bucket.dead_letters" // there are more than Bucket.DeadWarn; again only after there were fewer
	EventOperatorChanged Event = "operator.changed"    // an operation of the API or the command line changed the bucket: see package audit
	EventWindowClosed    Event = "window.closed"       // a drain window has closed: how many jobs were sent in it, and why others are left. Once per window
	EventFinishLate      Event = "finish.late"         // jobs will be left at the finish of the window: see schedule.Drain
)

// Events lists all types.
func Events() []Event {
	return []Event{EventJobDead, EventFlowDisabled, EventFlowRecovered, EventBreakerOpen, EventBucketFull, EventBucketPaused, EventDeadLetters, EventFinishLate, EventWindowClosed, EventOperatorChanged}
}
