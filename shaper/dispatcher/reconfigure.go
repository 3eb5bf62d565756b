package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/tundish-io/tundish/shaper"
)

// currentRun is the state of a running dispatcher.
type currentRun struct {
	ctx     context.Context //nolint:containedctx // ends when nothing more is to be claimed
	life    context.Context //nolint:containedctx // ends when deliveries must have ended
	running sync.WaitGroup  // the bucket loops, including the loops of removed buckets
	faults  []error         // of loops that have ended; guarded by the dispatcher's mu
}

// Reconfigure replaces the buckets, their workers and the hooks, as if the dispatcher had been made with these. It may be called whether the
// dispatcher runs or not, and makes no round trip.
//
// A new bucket is drained at once. A removed bucket is no longer claimed from. Its deliveries under way have Config.ShutdownTimeout to end, as at a
// stop, and its jobs stay in Redis. A bucket with another pool is drained there: see [Dispatcher.JoinPools]. Changed settings are written at once,
// for all processes, unless a higher revision is effective. Do not change what the buckets point to afterwards: pass new values instead.
//
// A delivery ends with the worker that it began with; the next one uses the new worker. So the caller may close a removed worker at once if
// deliveries under way survive that, as with the workers of package workers.
//
// It returns an error if a setting is invalid, a bucket has no worker, or an existing bucket would gain or lose flows or groups. Then nothing has
// changed.
func (d *Dispatcher) Reconfigure(buckets []shaper.Bucket, workers map[string]shaper.Worker, hooks []Hook) error {
	if err := d.check(buckets, workers, hooks); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.store.Reconfigure(buckets); err != nil {
		return err
	}
	d.workers = workers
	d.hooks.Store(&hooks)
	if d.current != nil {
		d.staff()
	}
	return nil
}

// JoinPools writes the settings that Redis does not have from this dispatcher yet. It moves each bucket into the pool of the configuration, or out of
// one. A running dispatcher does this by itself, before the first claim of a bucket.
//
// A bucket moves with all its data: jobs, dead letters, remembered ids, results, overrides, its pace and its quotas. The counts of limits start
// again, and so do the quotas of flows and groups without jobs. Deliveries under way delay the move: the bucket sends nothing until they have ended,
// and the error is an [shaper.ErrMoves]. A running dispatcher tries again by itself. In a Redis Cluster only an empty bucket moves, with its
// settings: one without jobs, dead letters, leases, callbacks or remembered ids. For every other bucket the error, an [shaper.ErrTagChanged], says what it holds
// and what to do.
//
// If two configurations disagree, the higher revision wins. With equal revisions, the dispatcher that started or reloaded last wins. JoinPools may be
// interrupted and repeated. Each of its round trips takes at most Config.Timeout.
func (d *Dispatcher) JoinPools(ctx context.Context) error { return d.store.JoinPools(ctx) }

// CheckPools returns an [shaper.ErrTagChanged] with the buckets that cannot move to the pool of these settings, because they are not empty in a Redis
// Cluster. The error says what they hold. CheckPools changes nothing.
func (d *Dispatcher) CheckPools(ctx context.Context, buckets []shaper.Bucket) error {
	return d.store.CheckPools(ctx, buckets)
}

// staff starts, stops and updates loops, so that there is one per bucket. The caller holds mu.
func (d *Dispatcher) staff() {
	before, after := *d.loops.Load(), []*bucketLoop(nil)
	for _, b := range d.store.All() {
		at := slices.IndexFunc(before, func(r *bucketLoop) bool { return r.Bucket == b })
		if at < 0 {
			after = append(after, d.startLoop(newBucketLoop(d, b, d.current.life)))
			continue
		}
		r, worker := before[at], d.workers[b.Name]
		r.deliveries.worker.Store(&worker)
		if !b.Configured.Load() {
			r.claims.wake.put() // its next claim writes the changed settings
		}
		after = append(after, r)
	}
	d.loops.Store(&after)
	if d.listens.Load() { // otherwise the subscription starts the first claims
		for _, r := range after {
			if !slices.Contains(before, r) {
				r.claims.wake.put()
			}
		}
	}
	d.lookAtAllSchedules()
	for _, r := range before {
		if !slices.Contains(after, r) {
			d.store.Log.Info("nothing more is claimed of a bucket that left the configuration, or its place; deliveries under way may end",
				"bucket", r.Name, "shutdown_timeout", r.shutdown)
			r.stop()
		}
	}
}

// startLoop runs a loop until the dispatcher stops, or staff stops it. The caller holds mu.
func (d *Dispatcher) startLoop(r *bucketLoop) *bucketLoop {
	c := d.current
	ctx, stop := context.WithCancel(c.ctx)
	r.stop = stop
	r.callbacks.moves.within = ctx
	c.running.Go(func() {
		defer stop()
		err := r.run(ctx)
		d.mu.Lock()
		defer d.mu.Unlock()
		if c.ctx.Err() != nil {
			c.faults = append(c.faults, err)
			return
		}
		if err != nil {
			r.log.Error("the deliveries of a bucket that left did not end well", "error", err)
		}
		d.gone = append(d.gone, r)
	})
	return r
}

// forgetGone removes the metric series of removed buckets whose last deliveries have ended. The patrol calls it, because the patrol itself still
// counts.
func (d *Dispatcher) forgetGone() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.gone {
		if d.store.Known(r.Name) == nil {
			d.store.Metrics.RemoveBucket(r.Name)
		}
	}
	d.gone = nil
}

// check returns what buckets and hooks lack.
func (d *Dispatcher) check(buckets []shaper.Bucket, workers map[string]shaper.Worker, hooks []Hook) error {
	if len(hooks) > 0 && d.cfg.Enqueue == nil {
		return errors.New("dispatcher: there are Hooks, and no Enqueue for their jobs: give the method of a producer.Client")
	}
	for i := range buckets {
		if buckets[i].Callbacks.Bucket != "" && d.cfg.Enqueue == nil {
			return fmt.Errorf("dispatcher: bucket %q has Callbacks, and there is no Enqueue for their jobs: give the method of a producer.Client", buckets[i].Name)
		}
		if name := buckets[i].Name; workers[name] == nil {
			return fmt.Errorf("bucket %q: no worker is registered: name one in Workers", name)
		}
		if _, ok := workers[buckets[i].Name].(shaper.BatchWorker); !ok && buckets[i].Batch.Has() {
			return fmt.Errorf("bucket %q: has batches, and its worker delivers none: give it a shaper.BatchWorker, or leave Batch out", buckets[i].Name)
		}
	}
	return nil
}
