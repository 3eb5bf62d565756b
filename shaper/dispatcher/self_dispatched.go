package dispatcher

import (
	"strings"
	"time"
)

// maxTicketAge bounds how long after its slot a dispatcher gives up a ticket, so that all tries take 2 s.
const maxTicketAge = 500 * time.Millisecond

// expectsMoreFor is how long after a self-dispatched job a bucket is expected to have more.
const expectsMoreFor = time.Minute

// handOver returns how much more time a self-dispatched job needs: its ticket travels to Redis and to another process, and its start to Redis and
// back. Slots are claimed that much farther ahead, so those jobs depart no later than others.
func handOver(trip time.Duration) time.Duration { return 2 * trip } //nolint:mnd // see above

// isSelfDispatched reports whether the job is self-dispatched, and not sent by a dispatcher: see [Permits].
func (l *leased) isSelfDispatched() bool { return l.sender != "" }

// isStarted reports whether this process has started the job by its ticket: see lua/start.lua.
func (l *leased) isStarted() bool { return strings.HasPrefix(l.claim, startedMark) }

// startedMark is the prefix of the claim of a start.
const startedMark = "+"

// ticketValidFor returns how long after its slot the sender may send the job.
func (l *leased) ticketValidFor() time.Duration { return min(l.validFor(), maxTicketAge) }
