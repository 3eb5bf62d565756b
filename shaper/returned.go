package shaper

// Why jobs are returned whose permits were void before they departed. Each of these slots is lost.
const (
	ReasonLateConnect = "late_connect" // the worker was not ready in time: it connected for too long
	ReasonLateProcess = "late_process" // the process was late for the slot: it stood still, or its processors were busy
	ReasonLateRedis   = "late_redis"   // the slot had passed when the claim's reply came
)

// LateReasons lists these reasons.
func LateReasons() []string {
	return []string{ReasonLateConnect, ReasonLateProcess, ReasonLateRedis}
}
