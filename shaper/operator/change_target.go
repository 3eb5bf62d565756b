package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/metrics"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

func (o *Operator) setTarget(ctx context.Context, t target, patch *FlowPatch) (shaper.OwnFlow, error) {
	if err := o.fits(ctx, t, patch); err != nil {
		return shaper.OwnFlow{}, err
	}
	fields, err := o.resolved(ctx, t, patch)
	if err != nil {
		return shaper.OwnFlow{}, err
	}
	return o.writeTarget(ctx, t, patch, fields)
}

// writeTarget writes the fields of a patch, as control_flow.lua takes them.
func (o *Operator) writeTarget(ctx context.Context, t target, patch *FlowPatch, fields []string) (shaper.OwnFlow, error) {
	args := make([]any, len(fields))
	names := make([]string, 0, len(patch.given))
	for i, value := range fields {
		args[i] = value
	}
	for _, name := range shaper.FlowSettingNames() {
		if patch.given[name] {
			names = append(names, string(name))
		}
	}
	change, err := o.changeTarget(ctx, t, metrics.ActionSet, args...)
	if err == nil {
		o.noteTargetIf(ctx, change.isChanged, t, metrics.ActionSet, "settings", strings.Join(names, ", ")) // no values: some are secret
	}
	return change.after, err
}

func (o *Operator) noteTarget(ctx context.Context, t target, action string, args ...any) {
	o.noteTargetIf(ctx, true, t, action, args...)
}

func (o *Operator) noteTargetIf(ctx context.Context, isChanged bool, t target, action string, args ...any) {
	what := "flow"
	if t.what == targetGroup {
		what = "group"
	}
	o.noteIf(ctx, isChanged, what, t.bucket, action, slices.Concat(t.label, args)...)
}

// changed is the change that control_flow.lua made.
type changed struct {
	before, after shaper.OwnFlow
	isChanged     bool          // its settings, its pause, or whether it is disabled
	said          releasedScope // before
}

// changeTarget runs control_flow.lua.
func (o *Operator) changeTarget(ctx context.Context, t target, action string, args ...any) (change changed, err error) {
	r, err := o.run(ctx, t.bucket, lua.ControlFlow, t.scriptKeys, append([]any{store.WakeChannel, o.store.KeyName(t.bucket), t.name, action, t.what}, args...)...)
	if err != nil {
		return change, err
	}
	at, levels, old, now, said, refused := r.Int(), r.Int(), r.Text(), r.Text(), r.Text(), r.Int()
	change.isChanged = old != now
	change.said = releasedScope{text: said, offset: r.Int(), at: at}
	switch {
	case r.Err() != nil:
		return change, fmt.Errorf("bucket %q: script control_flow: %w", t.bucket, r.Err())
	case levels == codec.LevelsNone:
		return change, fmt.Errorf("bucket %q: %w", t.bucket, ErrNoFlows)
	case int(levels) != t.keys.Levels:
		return change, fmt.Errorf("bucket %q: %w", t.bucket, store.ErrOtherFlows)
	case refused == lua.ListTooLong:
		return change, &InvalidChangeError{t.bucket, errTooManySecrets}
	case refused == lua.BudgetsOfBatch:
		return change, &InvalidChangeError{t.bucket, errors.New("budgets: are not for a bucket with batches: jobs of a batch have one answer, which does not say what each used")}
	case refused == lua.TooManyOwn:
		return change, &InvalidChangeError{t.bucket, fmt.Errorf("%q: as many flows or groups as flow.max_flows have settings or a pause of their own: remove some, or raise flow.max_flows", t.name)}
	}
	change.before, _ = codec.ParseOwnFlow(old) // a text that cannot be parsed is replaced
	change.after, err = codec.ParseOwnFlow(now)
	return change, err
}

// fits reports whether the rate and the burst that a flow or a group has with a patch fit together: scripts must be able to compute the time in which
// a burst refills.
func (o *Operator) fits(ctx context.Context, t target, patch *FlowPatch) error {
	if !patch.given[shaper.FlowRate] && !patch.given[shaper.FlowBurst] {
		return nil
	}
	infos, err := o.lookAt(ctx, t, []string{t.name})
	if err != nil {
		return err
	}
	rate, burst, err := o.ofAll(ctx, t)
	if err != nil {
		return err
	}
	own := patch.applied(infos[0].Own)
	all := bounds{rate: rate, burst: burst}
	return all.fits(t.bucket, &own)
}

// bounds are the rate and the burst of all flows of a bucket, or of all its groups.
type bounds struct {
	rate  admission.Rate
	burst int64
	known bool
}

// fits reports whether the rate and the burst of one of them go together, with its own settings over these.
func (b *bounds) fits(bucket string, own *shaper.OwnFlow) error {
	rate, burst := b.rate, b.burst
	if !own.Rate.IsZero() {
		rate = own.Rate
	}
	if own.Burst != nil {
		burst = *own.Burst
	}
	if !rate.IsZero() && float64(burst)/rate.PerSecond() > shaper.MaxBurstTime.Seconds() {
		return &InvalidChangeError{bucket, fmt.Errorf("burst: %d: at %s it takes more than %d days to come back", burst, rate, int(shaper.MaxBurstTime.Hours()/24))}
	}
	return nil
}

// ofAll returns the effective rate and burst of all flows of a bucket, or of all groups.
func (o *Operator) ofAll(ctx context.Context, t target) (rate admission.Rate, burst int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, o.store.Timeout)
	defer cancel()
	what := "flow"
	if t.what == targetGroup {
		what = "group"
	}
	values, err := o.store.Redis.HMGet(ctx, t.keys.Conf(), what+"_rate_count", what+"_rate_per", what+"_burst").Result()
	if err != nil {
		return rate, 0, fmt.Errorf("bucket %q: read the settings of its %ss: %w", t.bucket, what, err)
	}
	numbers := storedNumbers(values)
	return admission.Rate{Count: numbers[0], Per: time.Duration(numbers[1]) * time.Microsecond, Unit: admission.UnitRequests}, numbers[2], nil
}

// resolved returns the fields of a patch as control_flow.lua takes them. It first looks up the secrets to remove by their fingerprints, so the script
// removes the same secrets if it is sent twice. One round trip if there are any.
func (o *Operator) resolved(ctx context.Context, t target, patch *FlowPatch) ([]string, error) {
	fields, change := codec.OwnFields(&patch.own, patch.given), patch.secrets
	if change.isZero() {
		return fields, nil
	}
	if len(change.remove) > 0 {
		infos, err := o.lookAt(ctx, t, []string{t.name})
		if err != nil {
			return fields, err
		}
		for _, secret := range infos[0].Own.Secrets {
			if !slices.Contains(change.remove, shaper.SecretFingerprint(secret)) {
				continue
			}
			if slices.Contains(change.Put, secret) {
				return fields, &InvalidChangeError{t.bucket, errors.New(AddSecrets + ": the same secret is added and removed: do only one")}
			}
			change.Drop = append(change.Drop, secret)
		}
	}
	change.Most = maxFlowSecrets
	_, place := codec.OwnPlace(&patch.own, shaper.FlowSecrets)
	fields[place] = codec.FlowListChange + jsonLine(change)
	return fields, nil
}
