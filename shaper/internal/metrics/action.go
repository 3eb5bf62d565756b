package metrics

import "time"

func (m *Metrics) CountAction(bucket, action string) {
	if m != nil {
		m.actions.WithLabelValues(bucket, action).Inc()
	}
}

// Actions of an operator, for metrics.
const (
	ActionPause  = "pause"
	ActionResume = "resume"
	ActionSet    = "set"
	ActionReset  = "reset"
	ActionPurge  = "purge"

	ActionDrain   = "drain"   // started or stopped
	ActionRelease = "release" // of a hold, a breaker and an adaptive rate
	ActionEnable  = "enable"  // of a disabled flow
	ActionRemove  = "remove"  // of a flow, with all its data

	ActionRedrive  = "redrive"
	ActionRetryNow = "retry_now" // for jobs that waited for another attempt
	ActionDrop     = "drop"      // for dead letters
	ActionCancel   = "cancel"

	ActionScheduleSet    = "schedule_set"
	ActionScheduleRemove = "schedule_remove"
	ActionSchedulePause  = "schedule_pause"
	ActionScheduleResume = "schedule_resume"
	ActionScheduleFire   = "schedule_fire"
)

// ScheduleBlocked is the label of an attempt to fire whose job was not admitted.
const ScheduleBlocked = "blocked"

// CountSchedule counts fires of a schedule.
func (m *Metrics) CountSchedule(bucket, outcome string, n int) {
	if m != nil {
		m.schedules.WithLabelValues(bucket, outcome).Add(float64(n))
	}
}

// ObserveScheduleLateness records how long after its time the job of a fire was enqueued.
func (m *Metrics) ObserveScheduleLateness(bucket string, late time.Duration) {
	if m != nil {
		m.scheduleLateness.WithLabelValues(bucket).Observe(late.Seconds())
	}
}
