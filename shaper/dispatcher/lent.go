package dispatcher

import (
	"strings"
	"time"
)

// maxLent bounds how long after its slot a dispatcher gives up a ticket, so that all tries take 2 s.
const maxLent = 500 * time.Millisecond

// lentLately is how long after a self-dispatched job a bucket is expected to have more.
const lentLately = time.Minute

// handOver returns how much more time a self-dispatched job needs: its ticket travels to Redis and to another process, and its start to Redis and
// back. Slots are claimed that much farther ahead, so those jobs depart no later than others.
func handOver(trip time.Duration) time.Duration { return 2 * trip } //nolint:mnd // see above

// isLent reports whether the job is self-dispatched, and not sent by a dispatcher: see [Permits].
func (l *leased) isLent() bool { return l.sender != "" }

// isStarted reports whether this process has started the job by its ticket: see lua/start.lua.
func (l *leased) isStarted() bool { return strings.HasPrefix(l.claim, startedMark) }

// startedMark is the prefix of the claim of a start.
const startedMark = "+"

// lentFor returns how long after its slot the sender may send the job.
func (l *leased) lentFor() time.Duration { return min(l.validFor(), maxLent) }
