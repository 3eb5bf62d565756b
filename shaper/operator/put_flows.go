package operator

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

// flowsAtOnce is how many flows [Bucket.PutFlows] writes in parallel: with Redis 50 ms away, 2,000 flows take 7 s.
const flowsAtOnce = 16

// FlowChange is a change of one flow of a bucket.
type FlowChange struct {
	Group *string // nil in a bucket without groups
	Flow  string
	Patch FlowPatch
}

// FlowChangeError is a fault of one change of [Bucket.PutFlows].
type FlowChangeError struct {
	Index int // of the change
	Err   error
}

func (e *FlowChangeError) Error() string { return fmt.Sprintf("flow %d: %v", e.Index, e.Err) }
func (e *FlowChangeError) Unwrap() error { return e.Err }

// PutFlows gives many flows settings of their own, as [Flow.Set] does for one. It checks all changes before it writes the first. A change that
// does not fit, or a second one of the same flow, is a [*FlowChangeError], and nothing is written. A rate without a burst is checked with the burst
// of all flows, and the reverse: a patch should set both or clear them. It returns how many of the first changes are written: fewer than all if Redis
// fails or ctx ends. Sending the same again is safe. Two round trips, and one for each flow, 16 at a time.
func (b Bucket) PutFlows(ctx context.Context, changes []FlowChange) (written int, err error) {
	targets, err := b.op.checkFlows(ctx, b.name, changes)
	if err != nil {
		return 0, err
	}
	for written < len(changes) {
		if err := ctx.Err(); err != nil {
			return written, err
		}
		some := targets[written:min(written+flowsAtOnce, len(changes))]
		errs := make([]error, len(some))
		var writing sync.WaitGroup
		for i := range some {
			writing.Go(func() { errs[i] = b.op.putTarget(ctx, some[i], &changes[written+i].Patch) })
		}
		writing.Wait()
		for _, err := range errs {
			if err != nil {
				return written, err
			}
			written++
		}
	}
	return written, nil
}

// checkFlows returns the targets of changes, and an error if one does not fit.
func (o *Operator) checkFlows(ctx context.Context, bucket string, changes []FlowChange) ([]target, error) {
	k, err := o.keysOf(ctx, bucket)
	if err != nil {
		return nil, err
	}
	targets, first := make([]target, len(changes)), make(map[string]int, len(changes))
	all := &bounds{}
	for i := range changes {
		change := &changes[i]
		t, err := flowTarget(bucket, k, change.Group, change.Flow)
		if errors.Is(err, ErrNoFlows) {
			return nil, err // it is none of this line alone
		}
		if err == nil {
			err = validFlow(bucket, "flow", change.Flow)
		}
		if err == nil {
			err = o.checkPut(ctx, t, change, all)
		}
		if _, again := first[t.name]; err == nil && again {
			err = &InvalidChangeError{bucket, fmt.Errorf("flow: %q is named twice", change.Flow)}
		}
		if err != nil {
			return nil, &FlowChangeError{i, err}
		}
		targets[i], first[t.name] = t, i
	}
	return targets, nil
}

// checkPut checks the change of one flow. all are the rate and the burst of all flows, once they were read.
func (o *Operator) checkPut(ctx context.Context, t target, change *FlowChange, all *bounds) error {
	switch {
	case change.Patch.IsZero():
		return &InvalidChangeError{t.bucket, errNoChange}
	case !change.Patch.secrets.isZero():
		return &InvalidChangeError{t.bucket, fmt.Errorf("%s: are not taken for many flows: give all secrets", shaper.FlowSecrets)}
	}
	if err := o.checkDelivery(t.bucket, &change.Patch); err != nil {
		return err
	}
	own := &change.Patch.own
	if own.Rate.IsZero() && own.Burst == nil {
		return nil
	}
	if !all.known {
		var err error
		if all.rate, all.burst, err = o.ofAll(ctx, t); err != nil {
			return err
		}
		all.known = true
	}
	return all.fits(t.bucket, own)
}

// putTarget writes the settings of a patch to one flow.
func (o *Operator) putTarget(ctx context.Context, t target, patch *FlowPatch) error {
	_, err := o.writeTarget(ctx, t, patch, codec.OwnFields(&patch.own, patch.given))
	return err
}
