package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
)

// bucketPaths are the keys that buckets follow while a daemon runs: all that concern them.
var bucketPaths = []string{"revision", "limits", "pools", "buckets", "hooks", "schedules"}

// followBuckets makes the client and the operator's API follow the buckets.
func (d *daemon) followBuckets(_ context.Context, cfg *config.Config) error {
	buckets := Buckets(cfg)
	if err := errors.Join(d.client.Reconfigure(buckets), d.operator.Reconfigure(buckets)); err != nil {
		return err
	}
	d.inForce.Store(newApplied(cfg))
	d.learnedEstimates.keep(llmBuckets(cfg))
	return nil
}

// checkPools reports buckets that cannot change their pools: in a cluster those that are not empty, and all while Redis does not respond. A new bucket
// that is in another pool in Redis is not reported then: its first use finds out, as after a start.
func (d *daemon) checkPools(ctx context.Context, dispatcher *dispatcher.Dispatcher, cfg *config.Config) error {
	before := d.inForce.Load()
	var come, change []shaper.Bucket
	for _, b := range cfg.Buckets {
		switch was := before.buckets[b.Name]; {
		case was == nil:
			come = append(come, b.Bucket)
		case poolOf(was.Bucket) != poolOf(b) || was.RenamedFrom != b.RenamedFrom:
			change = append(change, b.Bucket)
		}
	}
	if err := dispatcher.CheckPools(ctx, change); errors.Is(err, shaper.ErrTagChanged) {
		return err
	} else if err != nil {
		return fmt.Errorf("whether a bucket can change its pool is not known while Redis does not answer: send SIGHUP when it does: %w", err)
	}
	err := dispatcher.CheckPools(ctx, come)
	if errors.Is(err, shaper.ErrTagChanged) {
		return err
	}
	if err != nil {
		d.log.WarnContext(ctx, "redis does not answer: new buckets are made by their first use", "error", err)
	}
	return nil
}

// writeBuckets makes the dispatcher write the changes of a reload. It returns an error for a bucket that can no longer move since it was checked.
func (d *daemon) writeBuckets(ctx context.Context, dispatcher *dispatcher.Dispatcher) error {
	err := d.client.Ping(ctx)
	if err == nil {
		err = dispatcher.JoinPools(ctx)
	}
	return d.laterUnlessRefused(ctx, err)
}
