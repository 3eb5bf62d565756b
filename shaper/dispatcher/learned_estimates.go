package dispatcher

import (
	"context"

	"github.com/tundish-io/tundish/shaper"
)

// LearnedEstimates returns the learned estimates of these buckets' workers, from this process and others, as stored in Redis. It takes one round trip, and
// one more for buckets that this dispatcher has not used yet. A bucket that cannot be read has no entry, and causes an error.
func (d *Dispatcher) LearnedEstimates(ctx context.Context, buckets ...string) (map[string]shaper.LearnedEstimates, error) {
	return d.store.LearnedEstimates(ctx, buckets...)
}

// StoreLearnedEstimates stores learned estimates in Redis, by bucket, unless Redis has estimates from more responses. It takes one round trip.
func (d *Dispatcher) StoreLearnedEstimates(ctx context.Context, estimates map[string]shaper.LearnedEstimates) error {
	return d.store.StoreLearnedEstimates(ctx, estimates)
}
