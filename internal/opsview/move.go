package opsview

import (
	"fmt"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// PlannedMove returns, for a bucket that is Elsewhere, what a dispatcher with this configuration does with it, and what would block it now.
func PlannedMove(info *operator.BucketInfo, configured *shaper.Bucket) string {
	text := fmt.Sprintf("it is in %s, and the configuration here has it in %s: a dispatcher that starts with this configuration, or reloads it, moves it",
		poolName(livePool(info)), poolName(poolNameOf(configured)))
	if jobs := info.Unfinished + info.Scheduled; jobs+info.Dead > 0 {
		text += fmt.Sprintf(" with %s and %s", Count(jobs, "job"), Count(info.Dead, "dead letter"))
	}
	if info.InFlight > 0 {
		text += fmt.Sprintf(", and the bucket sends nothing until its deliveries under way (%d now) have ended", info.InFlight)
	}
	return text
}

// moveText returns the progress of a move.
func moveText(info *operator.BucketInfo) string {
	return fmt.Sprintf("it moves from %s to %s, and %s moved so far: it sends nothing, and the next process that uses it completes the move",
		poolName(livePool(info)), poolName(info.Move.To), Count(info.Move.Keys, "key"))
}

// livePool is the pool that a bucket is in, "" in none.
func livePool(info *operator.BucketInfo) string {
	if info.Pool == nil {
		return ""
	}
	return info.Pool.Name
}
