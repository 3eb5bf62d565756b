package producer

import (
	"context"

	"github.com/tundish-io/tundish/shaper"
)

// Lessons returns what the workers of these buckets have learned, as dispatchers have stored it. One round trip for all of them, and one more
// for buckets that this client has not used yet. Of a bucket that cannot be read there is an error and no entry.
func (c *Client) Lessons(ctx context.Context, buckets ...string) (map[string]shaper.Lessons, error) {
	return c.store.Lessons(ctx, buckets...)
}

// Learn has Redis keep what this process has learned that sends jobs by permits, by bucket, where it was learned from more answers than what Redis has.
// One round trip for all of them.
func (c *Client) Learn(ctx context.Context, lessons map[string]shaper.Lessons) error {
	return c.store.Learn(ctx, lessons)
}
