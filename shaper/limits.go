package shaper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
)

// limitSet is the limits of a bucket as they are in force: what the
// configuration with the highest revision says, with the overrides of operators
// over it. The enqueue script refuses to decide by another one than the conf
// has (rev), and this process then reads the conf again.
type limitSet struct {
	rev    string
	limits []limitArgs
}

// limitArgs is a limit and what the enqueue script wants to know of it.
type limitArgs struct {
	admission.Limit
	tiers map[string][]any // algorithm, a, b, full, max and life; "" is the limit itself
	life  int64            // microseconds
}

func newLimitArgs(limit admission.Limit) limitArgs {
	life := limit.StateLife().Microseconds()
	args := func(l admission.Limit) []any {
		p := l.Params()
		most := l.MaxKeys
		if len(l.Per) == 0 {
			most = 0 // it has one key
		}
		return []any{string(p.Algorithm), p.A, p.B, p.Full, most, life}
	}
	l := limitArgs{Limit: limit, life: life, tiers: map[string][]any{"": args(limit)}}
	for tier := range limit.Tiers {
		l.tiers[tier] = args(limit.For(tier))
	}
	return l
}

// of returns the arguments for callers of a tier.
func (l *limitArgs) of(tier string) []any {
	if args, ok := l.tiers[tier]; ok {
		return args
	}
	return l.tiers[""]
}

// tierOf is a tier of the limit, or "" for one that it does not have.
func (l *limitArgs) tierOf(tier string) string {
	if _, ok := l.tiers[tier]; ok {
		return tier
	}
	return ""
}

// noteOverflow counts what a bucket's limits decided by the key that callers above
// MaxKeys share, and logs it now and then.
func (c *Client) noteOverflow(ctx context.Context, receipt *Receipt) {
	for i := range receipt.Decisions {
		d := &receipt.Decisions[i]
		if !d.Overflow || d.Source == admission.FromMemory {
			continue
		}
		c.store.metrics.countOverflow(receipt.Bucket, d.Limit)
		c.fullLog.Do(func() {
			c.store.log.WarnContext(ctx, "a limit has as many keys as it may: callers above them share one", "bucket", receipt.Bucket, "limit", d.Limit)
		})
	}
}

// inForce returns the limits of a bucket, which it reads from the conf unless
// they are known.
func (c *Client) inForce(ctx context.Context, b *door) (*limitSet, error) {
	if set := b.force.Load(); set != nil {
		return set, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.store.timeout)
	defer cancel()
	conf, err := c.store.redis.HGetAll(ctx, b.keys.conf()).Result()
	if err != nil {
		return nil, fmt.Errorf("bucket %q: read its limits: %w", b.Name, err)
	}
	limits, ignored, err := admission.DecodeLimits(conf)
	if err != nil {
		return nil, fmt.Errorf("bucket %q: %w", b.Name, err)
	}
	for _, name := range ignored {
		c.store.log.WarnContext(ctx, "the override of a limit does not fit it any more and is ignored: reset it, or override the limit again", "bucket", b.Name, "limit", name)
	}
	set := &limitSet{rev: conf[admission.FieldLimitsRev]}
	for _, limit := range limits {
		set.limits = append(set.limits, newLimitArgs(limit))
	}
	b.force.Store(set)
	return set, nil
}

// LimitHeaders lists the canonical names of the headers by which a bucket's
// limits count and its flows and groups are named, so that a caller can put them into the jobs' Identity. Until
// the bucket was used it knows those of the configuration only. It asks nobody.
func (c *Client) LimitHeaders(bucket string) []string {
	b := c.doors[bucket]
	if b == nil {
		return nil
	}
	settings := b.settings.Load()
	limits := settings.Limits
	if set := b.force.Load(); set != nil {
		limits = make([]admission.Limit, len(set.limits))
		for i := range set.limits {
			limits[i] = set.limits[i].Limit
		}
	}
	headers := admission.Headers(limits)
	var keys []string
	if settings.Flow != nil {
		keys = append(keys, settings.Flow.Key)
	}
	if settings.Group != nil {
		keys = append(keys, settings.Group.Key)
	}
	for _, key := range keys {
		if header := admission.HeaderOf(key); header != "" && !slices.Contains(headers, header) {
			headers = append(headers, header)
		}
	}
	return headers
}

// OverrideLimit changes a limit in every bucket that names it, for all processes at
// once, until [Client.ResetLimit]. It takes precedence over every configuration. The
// limit keeps its state. A setting that an earlier override changed and patch does not
// name stays changed. A patch that does not fit is an error and changes nothing; any
// other error may leave it changed in some buckets: do it again. It takes
// five round trips a bucket, and two more each time that others come between.
func (c *Client) OverrideLimit(ctx context.Context, name string, patch admission.Patch) error {
	return c.overrideLimit(ctx, name, func(before admission.Patch) admission.Patch { return before.Merge(patch) })
}

// ResetLimit removes the override of a limit, in every bucket that names it.
func (c *Client) ResetLimit(ctx context.Context, name string) error {
	return c.overrideLimit(ctx, name, func(admission.Patch) admission.Patch { return admission.Patch{} })
}

func (c *Client) overrideLimit(ctx context.Context, name string, change func(admission.Patch) admission.Patch) error {
	// All have to fit before one is written.
	for _, bucket := range c.store.order {
		if _, _, _, err := c.overrideText(ctx, c.doors[bucket], name, change); err != nil {
			return err
		}
	}
	var errs []error
	for _, bucket := range c.store.order {
		b := c.doors[bucket]
		if err := c.overrideIn(ctx, b, name, change); err != nil {
			errs = append(errs, fmt.Errorf("bucket %q: change limit %q: %w", bucket, name, err))
		}
		b.force.Store(nil)
	}
	return errors.Join(errs...)
}

// overrideTries is how often a change is tried again because another change came between.
// Each time, the other change got through.
const overrideTries = 20

// overrideIn writes an override, if the bucket has such a limit.
func (c *Client) overrideIn(ctx context.Context, b *door, name string, change func(admission.Patch) admission.Patch) error {
	for range overrideTries {
		text, rev, ok, err := c.overrideText(ctx, b, name, change)
		if err != nil || !ok {
			return err
		}
		reply, err := c.store.run(ctx, lua.Pin, b.keys.forPin(), name, text, rev)
		if err != nil {
			return err
		}
		r := lua.NewReader(reply)
		if written := r.Int() != 0; written || r.Err() != nil {
			return r.Err()
		}
	}
	return fmt.Errorf("others changed it %d times meanwhile: change it again", overrideTries)
}

// overrideText makes the text of an override of the limits that have this number; ok is false
// where the bucket has no such limit.
func (c *Client) overrideText(ctx context.Context, b *door, name string, change func(admission.Patch) admission.Patch) (text, rev string, ok bool, err error) {
	if err := c.store.configure(ctx, b.bucketState); err != nil {
		return "", "", false, err
	}
	conf, err := c.store.redis.HGetAll(ctx, b.keys.conf()).Result()
	if err != nil {
		return "", "", false, fmt.Errorf("bucket %q: read its limits: %w", b.Name, err)
	}
	if conf[fieldRateCount] == "" { // lost, or the bucket lives elsewhere: the next call finds out
		b.configured.Store(false)
		return "", "", false, fmt.Errorf("bucket %q: %w", b.Name, errNotConfigured)
	}
	var before admission.Patch
	if json.Unmarshal([]byte(conf[admission.FieldOverride+name]), &before) != nil {
		before = admission.Patch{} // there is none, or no script obeys it
	}
	delete(conf, admission.FieldOverride+name)
	limits, _, err := admission.DecodeLimits(conf)
	if err != nil {
		return "", "", false, fmt.Errorf("bucket %q: %w", b.Name, err)
	}
	at := slices.IndexFunc(limits, func(l admission.Limit) bool { return l.Name == name })
	if at < 0 {
		return "", "", false, nil
	}
	text, err = admission.OverrideText(limits[at], change(before))
	return text, conf[admission.FieldLimitsRev], err == nil, err
}
