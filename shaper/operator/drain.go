package operator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/metrics"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// DrainOptions bound a drain.
type DrainOptions struct {
	// Rate makes the drain slower than the bucket. A rate above the effective one changes nothing: see Set for that. Zero: the effective rate.
	Rate admission.Rate

	Max        int64 // departures after which it ends, including retries and jobs returned unsent; 0: any number
	UntilEmpty bool  // it ends when nothing waits, is due or is in flight. Always true without Max
}

// ErrDrainRuns says that a drain of the bucket runs already. Only one runs at a time: stop it first.
var ErrDrainRuns = errors.New("shaper: a drain of the bucket runs already")

// Drain makes a bucket send now, whatever its windows say, until the drain ends. It does not make the bucket faster, and a paused bucket stays
// paused. The drain is stored in Redis and survives the processes. Options that do not fit are an [*InvalidChangeError]. While another drain runs it
// returns that drain and [ErrDrainRuns]. One round trip, two if a reply is lost.
func (b Bucket) Drain(ctx context.Context, o DrainOptions) (*shaper.DrainRun, error) {
	var errs []error
	if !o.Rate.IsZero() {
		if err := o.Rate.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("rate: %w", err))
		} else if o.Rate.Unit != admission.UnitRequests {
			errs = append(errs, fmt.Errorf("rate: %q: only requests are paced in this version, not %s", o.Rate, o.Rate.Unit))
		}
	}
	if o.Max < 0 || o.Max > shaper.MaxCapacity {
		errs = append(errs, fmt.Errorf("max: %d: want 1 to %d, or 0 for any number", o.Max, shaper.MaxCapacity))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, &InvalidChangeError{b.name, err}
	}
	id := store.ShortID(rand.Uint64()) //nolint:gosec // a name, not a secret
	run, refused, err := b.controlDrain(ctx, "start", id, o.Rate.Count, o.Rate.Per.Microseconds(), o.Max, store.BoolArg(o.UntilEmpty || o.Max == 0))
	switch {
	case err != nil:
		return nil, err
	case refused:
		return run, fmt.Errorf("bucket %q: %w", b.name, ErrDrainRuns)
	}
	b.op.note(ctx, b.name, metrics.ActionDrain, "rate", o.Rate, "max", o.Max, "until_empty", run.UntilEmpty)
	return run, nil
}

// StopDrain ends the drain of a bucket, and reports whether one ran. Jobs that have a slot already are still sent, within 200 ms. One round trip.
func (b Bucket) StopDrain(ctx context.Context) (was bool, err error) {
	run, refused, err := b.controlDrain(ctx, "stop", "", 0, 0, 0, 0)
	if err != nil || refused {
		return false, err
	}
	b.op.note(ctx, b.name, metrics.ActionDrain, "before", shaper.DrainRuns, "after", run.State, "departed", run.Departed)
	return true, nil
}

// controlDrain runs control_drain.lua, once more if its reply is lost. refused: another drain runs, or none does.
func (b Bucket) controlDrain(ctx context.Context, action string, args ...any) (run *shaper.DrainRun, refused bool, err error) {
	all := append([]any{store.WakeChannel, b.op.store.KeyName(b.name), action, b.op.by}, args...)
	keys := func(k store.Keys) []string { return k.Of(lua.ControlDrain) }
	r, err := b.op.run(ctx, b.name, lua.ControlDrain, keys, all...)
	if err != nil && !errors.Is(err, shaper.ErrUnknownBucket) && ctx.Err() == nil {
		r, err = b.op.run(ctx, b.name, lua.ControlDrain, keys, all...)
	}
	if err != nil {
		return nil, false, err
	}
	_, refused = r.Int(), r.Int() == 1
	run = codec.ParseDrain(r.Text())
	return run, refused, r.Err()
}
