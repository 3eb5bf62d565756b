package dispatcher

import (
	"context"

	"github.com/tundish-io/tundish/shaper"
)

// Lessons returns what the workers of these buckets have learned, in this process and in others, as Redis keeps it. One round trip for all of
// them, and one more for buckets that this dispatcher has not used yet. Of a bucket that cannot be read there is an error and no entry.
func (d *Dispatcher) Lessons(ctx context.Context, buckets ...string) (map[string]shaper.Lessons, error) {
	return d.store.Lessons(ctx, buckets...)
}

// Learn has Redis keep what workers have learned, by bucket, where it was learned from more answers than what Redis has. One round trip for
// all of them.
func (d *Dispatcher) Learn(ctx context.Context, lessons map[string]shaper.Lessons) error {
	return d.store.Learn(ctx, lessons)
}
