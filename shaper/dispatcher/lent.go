package dispatcher

import (
	"strings"
	"time"
)

// maxLent is how long after its slot a dispatcher gives up a ticket at most, so that all tries take 2 s.
const maxLent = 500 * time.Millisecond

// lentLately is how long a bucket is expected to have more jobs that other processes send.
const lentLately = time.Minute

// handOver is by how much the way of a lent job is longer: its ticket goes to Redis and to another process, and the start to Redis and back.
// Slots lie as much farther ahead, so that those jobs leave no later than the others.
func handOver(trip time.Duration) time.Duration { return 2 * trip } //nolint:mnd // see above

// isLent reports whether another process than a dispatcher sends the job: see [Permits].
func (l *leased) isLent() bool { return l.sender != "" }

// isStarted reports whether this is that process, or one that starts jobs of a worker that hands over: see lua/start.lua.
func (l *leased) isStarted() bool { return strings.HasPrefix(l.claim, startedMark) }

// startedMark is what the claim of a start begins with.
const startedMark = "+"

// lentFor is how long after its slot another process may send the job.
func (l *leased) lentFor() time.Duration { return min(l.validFor(), maxLent) }
