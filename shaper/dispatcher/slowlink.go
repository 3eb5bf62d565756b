package dispatcher

import (
	"errors"
	"net"
	"time"
)

const (
	// maxClaimBytes bounds the bodies in the reply of a claim. A single job may be larger.
	maxClaimBytes = 1 << 20

	// minClaimBytes is the bound over the slowest link.
	minClaimBytes = 64 << 10

	// moreClaimBytes is what a claim with a timely reply adds to the bound.
	moreClaimBytes = 64 << 10

	// maxPatience bounds how long a claim waits for its reply over a link on which other replies arrive.
	maxPatience = 10 * time.Second
)

// slowLink adapts the claims of a bucket to the bandwidth to Redis: bodies that arrive after their slots are void waste slots.
type slowLink struct {
	bytes    int           // bound of the bodies of the next claim
	patience time.Duration // timeout of the next claim's reply; 0: the usual timeout
	slow     bool          // the last reply took so long that it was too late for its slots
}

func newSlowLink() slowLink { return slowLink{bytes: maxClaimBytes} }

// answered records how late the first job of a claim's reply was on arrival, and how long the reply took. It returns by how much to shift the slots
// of the reply.
//
// One late reply is a stall or a lost reply: its permits are returned. Two consecutive ones mean a slow link: the next replies would be as late, and
// their jobs would be returned forever. So their slots shift by their lateness, and keep their distances. Only one claim is under way at a time, so
// the slots of two replies do not mix.
func (l *slowLink) answered(late, took, wakeLimit, permitTTL time.Duration) (shift time.Duration) {
	l.patience = 0
	before := l.slow
	l.slow = min(late, took) > wakeLimit
	if late > permitTTL {
		l.bytes = max(l.bytes/2, minClaimBytes)
	} else {
		l.bytes = min(l.bytes+moreClaimBytes, maxClaimBytes)
	}
	if before && l.slow {
		return late
	}
	return 0
}

// failed records a claim without a reply. Repeating the claim returns the same jobs. If other calls are answered meanwhile, the claim needs a longer
// timeout, or its reply never arrives. If none are, Redis is down, and a longer timeout would only delay the first claim after that.
func (l *slowLink) failed(err error, timeout time.Duration, othersWork bool) {
	var late net.Error
	if !errors.As(err, &late) || !late.Timeout() {
		return
	}
	l.bytes = max(l.bytes/2, minClaimBytes)
	if othersWork {
		l.patience = min(2*max(l.patience, timeout), max(maxPatience, timeout))
	}
}
