package shaper

import "fmt"

// Reasons of jobs that were returned because their permits were void before they departed. Each of these slots is lost.
const (
	ReasonLateConnect = "late_connect" // the worker was not ready in time: connecting took too long
	ReasonLateProcess = "late_process" // the process was late for the slot: it stalled, or its CPUs were busy
	ReasonLateRedis   = "late_redis"   // the slot had passed when the claim's reply arrived
)

// LateReasons lists these reasons.
func LateReasons() []string {
	return []string{ReasonLateConnect, ReasonLateProcess, ReasonLateRedis}
}

// LatePermits counts the permits of a bucket in some time, and how many were returned unused, by reason.
type LatePermits struct {
	Departed int64            // requests
	Late     map[string]int64 // by [LateReasons]
}

// returnedMatters is the share of returned permits above which they hold a bucket back.
const returnedMatters = 0.05

// Share returns the share of permits that were returned unused.
func (l *LatePermits) Share() float64 {
	late := int64(0)
	for _, n := range l.Late {
		late += n
	}
	if late == 0 {
		return 0
	}
	return float64(late) / float64(late+l.Departed)
}

// HoldBack reports whether the share of returned permits is so high that the bucket misses its rate.
func (l *LatePermits) HoldBack() bool { return l.Share() >= returnedMatters }

// String returns how many permits were returned, and why; "" if none were.
func (l *LatePermits) String() string {
	share := l.Share()
	if share == 0 {
		return ""
	}
	cause, most := "", int64(0)
	for _, reason := range LateReasons() {
		if n := l.Late[reason]; n > most {
			cause, most = reason, n
		}
	}
	texts := map[string]string{
		ReasonLateConnect: "connecting to the receiver took longer than permit_ttl",
		ReasonLateProcess: "the dispatcher stood still, or its processors were too busy",
		ReasonLateRedis:   "replies of Redis came after the slots",
	}
	const percent = 100
	return fmt.Sprintf("%.0f %% of its permits came back unused in the last minute: %s (%s)", max(share*percent, 1), texts[cause], cause)
}
