package producer

import (
	"context"
	"fmt"
	"slices"

	"github.com/tundish-io/tundish/shaper"
)

// OpenBundle opens a bundle in a bucket, or completes an open one: see [shaper.Bundle]. A field that is 0 or empty leaves the earlier value;
// repeating a call is harmless. It returns [shaper.ErrBundleTaken] if another caller has a bundle of this id. It returns [shaper.ErrBundleFinished]
// if the bundle has finished and would change, and [shaper.ErrTooManyBundles] if the bucket has no room. Faults of the bundle are
// [*shaper.FieldError]s, joined. One round trip, and two more before the first one of a bucket.
func (c *Client) OpenBundle(ctx context.Context, bucket string, bundle shaper.Bundle) (shaper.BundleInfo, error) {
	if !c.open.Enter() {
		return shaper.BundleInfo{}, shaper.ErrClosed
	}
	defer c.open.Leave()
	return c.store.OpenBundle(ctx, bucket, &bundle)
}

// Bundle returns the state of a bundle, or [shaper.ErrUnknownBundle]. Its counts lag behind the ends of jobs by some milliseconds, and by seconds if
// no dispatcher got the message. One round trip.
func (c *Client) Bundle(ctx context.Context, bucket, id string) (shaper.BundleInfo, error) {
	return c.store.Bundle(ctx, bucket, id)
}

// refuseUnknownBundles refuses jobs whose callers do not have the named bundle, and returns the others. It takes one round trip for each bucket with
// such jobs.
func (c *Client) refuseUnknownBundles(ctx context.Context, entries []*entry) ([]*entry, error) {
	var asked map[*producerBucket]map[string]bool
	for _, t := range entries {
		if t.job.Bundle == "" {
			continue
		}
		if asked == nil {
			asked = map[*producerBucket]map[string]bool{}
		}
		if asked[t.bucket] == nil {
			asked[t.bucket] = map[string]bool{}
		}
		asked[t.bucket][t.job.Bundle] = true
	}
	if asked == nil {
		return entries, nil
	}
	owners := make(map[*producerBucket]map[string]shaper.Owner, len(asked))
	for bucket, ids := range asked {
		err := bucket.breaker.Run(func() (err error) {
			owners[bucket], err = c.store.BundleOwners(ctx, bucket.Name, ids)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(entries, func(t *entry) bool {
		owner, there := owners[t.bucket][t.job.Bundle]
		if t.job.Bundle == "" || there && owner.Mark == shaper.CallerMark(t.job.Caller) {
			return false
		}
		*t.receipt = shaper.Receipt{ID: t.job.ID, Bucket: t.job.Bucket, Flow: t.job.Flow, Group: t.job.Group, Refusal: &shaper.Refusal{
			Reason: shaper.ReasonUnknownBundle,
			Detail: fmt.Sprintf("bucket %q has no bundle %q of this caller: open it before its first job", t.job.Bucket, t.job.Bundle),
		}}
		c.store.Metrics.CountReceipt(t.receipt)
		return true
	}), nil
}
