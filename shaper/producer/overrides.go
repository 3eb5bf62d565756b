package producer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// OverrideLimit changes a limit in every bucket that names it, for all processes at once, until [Client.ResetLimit]. It takes precedence over every
// configuration. The limit keeps its state. A setting of an earlier override that patch does not name stays changed. A patch that does not fit is an
// error and changes nothing. After any other error the limit may be changed in some buckets: call it again. It takes five round trips per bucket, and
// two more for each concurrent change.
func (c *Client) OverrideLimit(ctx context.Context, name string, patch admission.Patch) error {
	return c.overrideLimit(ctx, name, func(before admission.Patch) admission.Patch { return before.Merge(patch) })
}

// ResetLimit removes the override of a limit, in every bucket that names it.
func (c *Client) ResetLimit(ctx context.Context, name string) error {
	return c.overrideLimit(ctx, name, func(admission.Patch) admission.Patch { return admission.Patch{} })
}

func (c *Client) overrideLimit(ctx context.Context, name string, change func(admission.Patch) admission.Patch) error {
	// All have to fit before one is written.
	buckets := slices.SortedFunc(maps.Values(*c.buckets.Load()), func(a, b *producerBucket) int { return strings.Compare(a.Name, b.Name) })
	for i, b := range buckets {
		b, err := c.use(ctx, b)
		if err != nil {
			return err
		}
		buckets[i] = b
		if _, _, _, err := c.overrideText(ctx, b, name, change); err != nil {
			return err
		}
	}
	var errs []error
	for _, b := range buckets {
		if err := c.overrideIn(ctx, b, name, change); err != nil {
			errs = append(errs, fmt.Errorf("bucket %q: change limit %q: %w", b.Name, name, err))
		}
		b.force.Store(nil)
	}
	return errors.Join(errs...)
}

// overrideTries is how often a change is tried again because another change came first.
const overrideTries = 20

// overrideIn writes an override, if the bucket has such a limit.
func (c *Client) overrideIn(ctx context.Context, b *producerBucket, name string, change func(admission.Patch) admission.Patch) error {
	for range overrideTries {
		text, rev, ok, err := c.overrideText(ctx, b, name, change)
		if err != nil || !ok {
			return err
		}
		reply, err := c.store.Run(ctx, lua.Override, b.Keys.Of(lua.Override), name, text, rev)
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

// overrideText returns the text of an override of the limits that have this number; ok is false if the bucket has no such limit.
func (c *Client) overrideText(ctx context.Context, b *producerBucket, name string, change func(admission.Patch) admission.Patch) (text, rev string, ok bool, err error) {
	if err := c.store.Configure(ctx, b.Bucket); err != nil {
		return "", "", false, err
	}
	conf, err := c.store.Redis.HGetAll(ctx, b.Keys.Conf()).Result()
	if err != nil {
		return "", "", false, fmt.Errorf("bucket %q: read its limits: %w", b.Name, err)
	}
	if conf[store.FieldRateCount] == "" { // lost, or the bucket lives elsewhere: the next call finds out
		b.Configured.Store(false)
		return "", "", false, fmt.Errorf("bucket %q: %w", b.Name, store.ErrNotConfigured)
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
