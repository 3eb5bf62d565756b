package dispatcher

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/tundish-io/tundish/lua"
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
func (l *slowLink) failed(start time.Time, err error, d *bucketLoop) {
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		return
	}
	l.bytes = max(l.bytes/2, minClaimBytes)
	if d.outage.workedSince(start) {
		l.patience = min(2*max(l.patience, d.store.Timeout), max(maxPatience, d.store.Timeout))
	}
}

// sendClaim sends a claim, and gives it the time that the link needs.
func (d *bucketLoop) sendClaim(ctx context.Context, call lua.Call) (*lua.Reader, error) {
	s := d.via
	if d.link.patience > 0 {
		s = s.WithTimeout(ctx, call.Keys[0], d.link.patience)
	}
	return s.RunConfigured(ctx, d.Bucket, call.Script, call.Keys, call.Args...)
}

// setUnanswered notes the claim whose answer has not arrived, "" if there is none.
// Its jobs are leased to this process, which does not know them: the
// heartbeat extends their leases by the id of the claim. It begins before the
// answer is there only where that may take as long as a heartbeat: the claims
// of an idle bucket need none.
func (d *bucketLoop) setUnanswered(claimID string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.unknown = claimID; claimID != "" && max(d.link.patience, d.store.Timeout) >= d.heartbeatEvery() {
		d.begin(&d.beat)
	}
}

// keepUnanswered has the heartbeat extend the leases of a claim that failed, if its answer did not come.
func (d *bucketLoop) keepUnanswered() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.unknown != "" {
		d.begin(&d.beat)
	}
}

func (d *bucketLoop) unansweredClaim() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.unknown
}
