package app

import (
	"context"
	"errors"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/shaper"
)

// places moves buckets into their pools.
type places interface {
	JoinPools(ctx context.Context) error
}

// poolOf returns the configured pool of a bucket, "" if it is in none.
func poolOf(b config.Bucket) string {
	if b.Pool == nil {
		return ""
	}
	return b.Pool.Name
}

// joinPools makes a dispatcher write the settings of all buckets and move them into their configured pools; a producer looks up where they are. It
// returns an error for a bucket that cannot move: the daemon does not start then. It returns none if Redis does not respond, or if a bucket moves after
// its deliveries have ended: the first use joins.
func (d *daemon) joinPools(ctx context.Context) error {
	return d.laterUnlessRefused(ctx, d.places.JoinPools(ctx))
}

// laterUnlessRefused returns the error of a bucket that cannot move, and logs any other one: the first use of the bucket tries again.
func (d *daemon) laterUnlessRefused(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, shaper.ErrTagChanged):
		return err
	case errors.Is(err, shaper.ErrMoves):
		d.log.InfoContext(ctx, "a bucket moves to another pool once its deliveries have ended", "state", err.Error())
	case err != nil:
		d.log.WarnContext(ctx, "not all buckets could be configured: their first use tries again", "error", err)
	}
	return nil
}
