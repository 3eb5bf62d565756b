package dispatcher

import (
	"errors"
	"net"
	"time"
)

const (
	// maxClaimBytes bounds the bodies in the answer of a claim. A single job may
	// be larger.
	maxClaimBytes = 1 << 20

	// minClaimBytes is the bound over the slowest link.
	minClaimBytes = 64 << 10

	// moreClaimBytes is what a claim that came in time adds to the bound.
	moreClaimBytes = 64 << 10

	// maxPatience bounds the time that a claim waits for its answer over a link
	// on which other calls arrive.
	maxPatience = 10 * time.Second
)

// slowLink adapts the claims of a bucket to the bandwidth to Redis: bodies that
// arrive after their slots are void cost slots for nothing.
type slowLink struct {
	bytes    int           // of bodies that the next claim asks for
	patience time.Duration // that the next claim has for its answer; 0 is that of any call
	slow     bool          // the last answer came too late for its slots, because it took so long
}

func newSlowLink() slowLink { return slowLink{bytes: maxClaimBytes} }

// answered notes how late the first job of a claim's answer was when it arrived, and how long the answer took. It
// returns by how much the slots of the answer move.
//
// One late answer is a stall or a lost reply: its permits are given back. Two in a row are a slow link, where the
// next answers would be as late, and their jobs would be given back for ever. So their slots move by as much as they
// are late, and keep their distances. One claim is under way at a time, so the slots of two answers do not mix.
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

// failed notes a claim that got no answer. The same claim is answered by the same
// jobs: where other calls are answered meanwhile, it needs more time, or it
// never arrives. Where none is, Redis is away, and waiting longer would delay
// the first claim after that.
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
