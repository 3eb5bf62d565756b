// Package fleet is what the processes on one Redis know of each other: who runs, and what all of them count. A [Member] tells what its process
// does every five seconds, and every second while somebody looks. A [View] reads it.
//
// What a process counts is never added up in Redis but for the history: each process tells its counters since it started, so a message that
// is lost, or told twice, changes no sum. A process that dies takes with it what it counted since it told it last.
package fleet

import "time"

// Times of the fleet.
const (
	Beat    = 5 * time.Second  // between two beats of a process
	Watched = time.Second      // the same while somebody looks
	Silence = 15 * time.Second // after which a silent process is gone

	// Forgotten is when nothing is known of a silent process any more. What it delivered is part of [Snapshot.Progress] until then.
	Forgotten = time.Minute
	Period    = 5 * time.Minute // between two points of the history
	Points    = 288             // of the history: a day
	Slots     = 12              // of a Beat, which a process remembers: a minute
	Bin       = 100 * time.Millisecond

	lookedAt = 10 * time.Second // how long somebody who looks is known for
)

// Keys in Redis, which share a slot: see lua/beat.lua.
const (
	beatsKey     = "tundish:{fleet}:beats"
	processesKey = "tundish:{fleet}:processes"
	watchedKey   = "tundish:{fleet}:watched"
	countsKey    = "tundish:{fleet}:counts:" // and the id of a process
	lossKey      = "tundish:{fleet}:data_lost"
	historyKey   = "tundish:{fleet}:history:" // and the number of a period
)

// everything is what somebody looks at who looks at all buckets.
const everything = "*"

// binsOf is the name under which a process tells the bins of a bucket that somebody looks at. No bucket has a colon in its name.
func binsOf(bucket string) string { return "bins:" + bucket }
