package opsview

import (
	"cmp"
	"fmt"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// PlannedMove returns, for a bucket that is Elsewhere, what a dispatcher with this configuration does with it, and what would block it now.
func PlannedMove(info *operator.BucketInfo, configured *shaper.Bucket) string {
	if first := cmp.Or(info.FirstName, info.Name); first != configured.KeyName() {
		return fmt.Sprintf("it was renamed from %q, and the configuration here does not say so: a dispatcher with it does not start until it has renamed_from = %q",
			first, first)
	}
	text := fmt.Sprintf("it is in %s, and the configuration here has it in %s: a dispatcher that starts with this configuration, or reloads it, moves it",
		poolName(livePool(info)), poolName(poolNameOf(configured)))
	text += withJobs(info)
	if info.InFlight > 0 {
		text += fmt.Sprintf(", and the bucket sends nothing until its deliveries under way (%d now) have ended", info.InFlight)
	}
	return text
}

// withJobs says what goes with a bucket.
func withJobs(info *operator.BucketInfo) string {
	jobs := info.Unfinished + info.Scheduled
	if jobs+info.Dead == 0 {
		return ""
	}
	return fmt.Sprintf(" with %s and %s", Count(jobs, "job"), Count(info.Dead, "dead letter"))
}

// PlannedRename says of a bucket what a dispatcher does with it that is the first to have the name that the configuration here gives; "" of one
// that has this name already, or was never made.
func PlannedRename(info *operator.BucketInfo) string {
	if info.EffectiveName == "" || info.EffectiveName == info.Name {
		return ""
	}
	return fmt.Sprintf("it is %q until a dispatcher with this configuration starts, or reloads it: then it goes on under the new name%s. Nothing moves, "+
		"and processes with either name use the same jobs", info.EffectiveName, withJobs(info))
}

// renameText says of a bucket that its name here is not the effective one.
func renameText(info *operator.BucketInfo) string {
	if info.EffectiveName == "" || info.EffectiveName == info.Name {
		return ""
	}
	return fmt.Sprintf("the dispatcher that wrote its settings has it as %q: both names have the same jobs", info.EffectiveName)
}

// moveText says how far a move is that has begun.
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
