// Package fleet lets the processes on one Redis see each other: which are running, and what they count. A [Member] sends a heartbeat every five
// seconds, and every second while somebody is watching. A [View] reads the heartbeats.
//
// Except for the history, Redis never adds up counts. Each process reports its totals since it started, so a heartbeat that is lost or repeated
// changes no sum. Counts since the last heartbeat are lost if the process dies.
package fleet

import "time"

// Times of the fleet.
const (
	HeartbeatInterval = 5 * time.Second  // between two heartbeats of a process
	Watched           = time.Second      // the same while somebody is watching
	Silence           = 15 * time.Second // after which a process without a heartbeat counts as gone

	// Forgotten is how long a silent process is remembered. Until then its deliveries are part of [Snapshot.Progress].
	Forgotten = time.Minute
	Period    = 5 * time.Minute // between two points of the history
	Points    = 288             // of the history: a day
	Slots     = 12              // a process remembers this many intervals: a minute
	Bin       = 100 * time.Millisecond

	lookedAt = 10 * time.Second // how long a bucket stays marked as watched
)

// Keys in Redis, which share a hash slot: see lua/heartbeat.lua.
const (
	heartbeatsKey = "tundish:{fleet}:heartbeats"
	processesKey  = "tundish:{fleet}:processes"
	watchedKey    = "tundish:{fleet}:watched"
	countsKey     = "tundish:{fleet}:counts:" // plus the id of a process
	lossKey       = "tundish:{fleet}:data_lost"
	historyKey    = "tundish:{fleet}:history:" // plus the number of a period
)

// everything marks all buckets as watched.
const everything = "*"

// binsOf returns the name under which a process reports the bins of a watched bucket. No bucket has a colon in its name.
func binsOf(bucket string) string { return "bins:" + bucket }
