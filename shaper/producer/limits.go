package producer

import (
	"context"
	"fmt"
	"slices"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/shaper"
)

// limitSet is the effective limits of a bucket: the limits of the configuration with the highest revision, with the overrides of operators. The enqueue
// script refuses to decide by a set with another rev than the conf has, and this process then reads the conf again.
type limitSet struct {
	rev    string
	limits []limitArgs
}

// limitArgs is a limit and its arguments of the enqueue script.
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

// argsOf returns the arguments for callers of a tier.
func (l *limitArgs) argsOf(tier string) []any {
	if args, ok := l.tiers[tier]; ok {
		return args
	}
	return l.tiers[""]
}

// tierOf returns a tier of the limit, or "" if the limit does not have it.
func (l *limitArgs) tierOf(tier string) string {
	if _, ok := l.tiers[tier]; ok {
		return tier
	}
	return ""
}

// noteOverflow counts decisions of a bucket's limits by the key that callers above MaxKeys share, and sometimes logs them.
func (c *Client) noteOverflow(ctx context.Context, receipt *shaper.Receipt) {
	for i := range receipt.Decisions {
		d := &receipt.Decisions[i]
		if !d.Overflow || d.Source == admission.FromMemory {
			continue
		}
		c.store.Metrics.CountOverflow(receipt.Bucket, d.Limit)
		c.fullLog.Do(func() {
			c.store.Log.WarnContext(ctx, "a limit has as many keys as it may: callers above them share one", "bucket", receipt.Bucket, "limit", d.Limit)
		})
	}
}

// inForce returns the effective limits of a bucket. It reads them from the conf unless they are known.
func (c *Client) inForce(ctx context.Context, b *producerBucket) (*limitSet, error) {
	if set := b.force.Load(); set != nil {
		return set, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.store.Timeout)
	defer cancel()
	conf, err := c.store.Redis.HGetAll(ctx, b.Keys.Conf()).Result()
	if err != nil {
		return nil, fmt.Errorf("bucket %q: read its limits: %w", b.Name, err)
	}
	limits, ignored, err := admission.DecodeLimits(conf)
	if err != nil {
		return nil, fmt.Errorf("bucket %q: %w", b.Name, err)
	}
	for _, name := range ignored {
		c.store.Log.WarnContext(ctx, "the override of a limit does not fit it any more and is ignored: reset it, or override the limit again", "bucket", b.Name, "limit", name)
	}
	set := &limitSet{rev: conf[admission.FieldLimitsRev]}
	for _, limit := range limits {
		set.limits = append(set.limits, newLimitArgs(limit))
	}
	b.force.Store(set)
	return set, nil
}

// LimitHeaders lists the canonical names of the headers that a bucket needs in the Identity of its jobs: its limits count by
// them, or its flows and groups are named by them. Before the first use of the bucket it knows the configuration only. It
// makes no round trip.
func (c *Client) LimitHeaders(bucket string) []string {
	b := (*c.buckets.Load())[bucket]
	if b == nil {
		return nil
	}
	settings := b.Settings.Load()
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
