package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/shaper"
)

// bucketPaths are the keys that buckets follow while a daemon runs: all that concern them.
var bucketPaths = []string{"revision", "limits", "pools", "buckets", "hooks", "schedules"}

// followBuckets has what enqueues and what operators use follow the buckets, and brings each into its pool.
func (d *daemon) followBuckets(ctx context.Context, cfg *config.Config) error {
	moves, err := d.checkPools(ctx, cfg)
	if err != nil {
		return err
	}
	buckets := shaperBuckets(cfg)
	if err := errors.Join(d.client.Reconfigure(buckets), d.operator.Reconfigure(buckets)); err != nil {
		return err
	}
	d.inForce.Store(cfg)
	if !moves {
		return nil
	}
	if err = d.client.JoinPools(ctx); errors.Is(err, shaper.ErrTagChanged) { // a job came since the check
		return err
	}
	if err != nil {
		d.log.WarnContext(ctx, "not all buckets could be configured: their first use tries again", "error", err)
	}
	return nil
}

// checkPools reports whether buckets come, or change their pools. The error is of a bucket that is not empty, so that it cannot, or
// of one that may not be empty, because Redis does not answer. Nothing says of a bucket that comes that it is elsewhere, then: its
// first use finds out, as after a start.
func (d *daemon) checkPools(ctx context.Context, cfg *config.Config) (moves bool, err error) {
	before := d.inForce.Load()
	var come, change []shaper.Bucket
	for _, b := range cfg.Buckets {
		switch _, known := workerOf(before, b.Name); {
		case !known:
			come = append(come, b.Bucket)
		case configuredPool(before, b.Name) != configuredPool(cfg, b.Name):
			change = append(change, b.Bucket)
		}
	}
	if len(come)+len(change) == 0 {
		return false, nil
	}
	if err := d.client.CheckPools(ctx, change); errors.Is(err, shaper.ErrTagChanged) {
		return false, err
	} else if err != nil {
		return false, fmt.Errorf("a bucket changes its pool only while it is empty, and Redis does not say whether it is: send SIGHUP when Redis answers: %w", err)
	}
	switch err := d.client.CheckPools(ctx, come); {
	case errors.Is(err, shaper.ErrTagChanged):
		return false, err
	case err != nil:
		d.log.WarnContext(ctx, "redis does not answer: new buckets are made by their first use", "error", err)
		return false, nil
	}
	return true, nil
}
