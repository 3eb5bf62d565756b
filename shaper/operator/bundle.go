package operator

import (
	"context"

	"github.com/tundish-io/tundish/shaper"
)

// OpenBundle opens a bundle in the bucket, or completes an open one: see the method of [producer.Client].
//
// [producer.Client]: https://pkg.go.dev/github.com/tundish-io/tundish/shaper/producer#Client
func (b Bucket) OpenBundle(ctx context.Context, bundle shaper.Bundle) (shaper.BundleInfo, error) {
	return b.op.store.OpenBundle(ctx, b.name, &bundle)
}

// Bundle returns the state of a bundle of the bucket, or [shaper.ErrUnknownBundle]. One round trip.
func (b Bucket) Bundle(ctx context.Context, id string) (shaper.BundleInfo, error) {
	return b.op.store.Bundle(ctx, b.name, id)
}
