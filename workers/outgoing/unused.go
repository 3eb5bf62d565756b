package outgoing

import (
	"context"
	"time"
)

// unusedTimeout is how long a connection is kept that was made for a job and has carried no request: the permit was void, and the job's next
// turn may be minutes away. Most receivers close such a connection earlier.
const unusedTimeout = 5 * time.Minute

// keepFor returns how long a connection is kept that rests.
func (c *conn) keepFor() time.Duration {
	if c.isUsed {
		return idleTimeout
	}
	return unusedTimeout
}

// timeLimit is the time that one attempt has.
type timeLimit struct {
	ctx    context.Context //nolint:containedctx // replaced by extend
	cancel context.CancelFunc
}

func newTimeLimit(ctx context.Context, timeout time.Duration) *timeLimit {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	return &timeLimit{ctx, cancel}
}

// extend adds the time that a departure waited for its turn, which is none of the receiver's. ctx is the context without the limit.
func (l *timeLimit) extend(ctx context.Context, waited time.Duration) {
	const least = time.Millisecond // less makes no difference
	deadline, _ := l.ctx.Deadline()
	if waited < least {
		return
	}
	ctx, cancel := context.WithDeadline(ctx, deadline.Add(waited))
	before := l.cancel
	l.ctx, l.cancel = ctx, func() { cancel(); before() }
}
