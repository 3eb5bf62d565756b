package producer

import (
	"context"

	"github.com/tundish-io/tundish/shaper"
)

// LearnedEstimates returns the learned estimates of these buckets, as dispatchers have stored them. One round trip for all of them, and one more for
// buckets that this client has not used yet. For a bucket that cannot be read there is an error and no entry.
func (c *Client) LearnedEstimates(ctx context.Context, buckets ...string) (map[string]shaper.LearnedEstimates, error) {
	return c.store.LearnedEstimates(ctx, buckets...)
}

// StoreLearnedEstimates stores the learned estimates of a process that sends jobs by permits, by bucket. Redis keeps its own estimate if that is based on
// more responses. One round trip for all of them.
func (c *Client) StoreLearnedEstimates(ctx context.Context, estimates map[string]shaper.LearnedEstimates) error {
	return c.store.StoreLearnedEstimates(ctx, estimates)
}
