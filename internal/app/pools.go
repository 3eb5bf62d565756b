package app

import (
	"context"
	"errors"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/shaper"
)

// places is what brings buckets into their pools.
type places interface {
	JoinPools(ctx context.Context) error
}

// poolOf is the pool in which the configuration has a bucket, "" if in none.
func poolOf(b config.Bucket) string {
	if b.Pool == nil {
		return ""
	}
	return b.Pool.Name
}

// joinPools has a dispatcher write the settings of all buckets and bring them into the pools that the configuration says; a producer finds
// out where they are. The error is of a bucket that is not empty: the daemon does not start then. A Redis that does not answer is no
// error: the first use joins.
func (d *daemon) joinPools(ctx context.Context) error {
	err := d.places.JoinPools(ctx)
	if errors.Is(err, shaper.ErrTagChanged) {
		return err
	}
	if err != nil {
		d.log.WarnContext(ctx, "not all buckets could be configured: their first use tries again", "error", err)
	}
	return nil
}
