package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/tundish-io/tundish/shaper"
)

// currentRun is what runs of a dispatcher.
type currentRun struct {
	ctx     context.Context //nolint:containedctx // ends when nothing more is to be claimed
	life    context.Context //nolint:containedctx // ends when deliveries must have ended
	running sync.WaitGroup  // the loops, also of buckets that left
	faults  []error         // of loops that ended; the dispatcher's mu guards it
}

// Reconfigure replaces the buckets, their workers and the hooks, as if the dispatcher had been made with these. It may be
// called while the dispatcher runs or does not, and makes no round trip.
//
// A bucket that comes is drained at once. Of a bucket that leaves nothing more is claimed: deliveries under way have
// Config.ShutdownTimeout to end, as at a stop, and its jobs stay in Redis. A bucket that is in another pool than before is
// drained there: see [Dispatcher.JoinPools]. Settings of a bucket that have changed are
// written at once, for all processes, unless a higher revision is in force there. What the buckets point to is not to be changed
// afterwards: give others instead.
//
// A delivery ends with the worker that it began with, and the next one has the new worker. So the caller may close a worker
// that is not among these any more as soon as a delivery under way survives that, as those of package workers do.
//
// An error says that something is not valid, that a bucket has no worker, or that a bucket that stays would get or lose flows
// or groups. Then nothing has changed.
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

// JoinPools writes the settings of all buckets that Redis does not have from this dispatcher yet, and brings each bucket into the pool
// that the configuration says, or out of one. A dispatcher that runs does so by itself, before the first claim of a bucket.
//
// A bucket changes its pool with all that it holds: jobs, dead letters, remembered ids, results, overrides, its pace and its quotas. What
// limits have counted begins again, and so does the quota of a flow or group without jobs. Deliveries under way keep a bucket: it sends
// nothing until they have ended, and the error is an [shaper.ErrMoves]. A dispatcher that runs tries again by itself. In a Redis Cluster a
// bucket changes its pool while it is empty, with its settings: no jobs, dead letters, leases or remembered ids. The error, an
// [shaper.ErrTagChanged], says of each other bucket what it holds and how to go on; the other buckets have joined.
//
// Where two configurations disagree, the higher revision wins, and of equal ones the dispatcher that started or reloaded
// last. JoinPools may be interrupted and repeated. Each of its round trips takes at most Config.Timeout.
func (d *Dispatcher) JoinPools(ctx context.Context) error { return d.store.JoinPools(ctx) }

// CheckPools reports the buckets that could not change their pool as these settings say, because they are not empty in a Redis Cluster:
// an [shaper.ErrTagChanged] that says what they hold. It changes nothing.
func (d *Dispatcher) CheckPools(ctx context.Context, buckets []shaper.Bucket) error {
	return d.store.CheckPools(ctx, buckets)
}

// staff has one loop for each bucket: it starts, stops and changes loops. The caller holds mu.
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
			r.claims.wake.put() // its next claim writes what has changed
		}
		after = append(after, r)
	}
	d.loops.Store(&after)
	if d.listens.Load() { // else the subscription begins the first claims
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
	r.callbacks.tells.within = ctx
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

// forgetGone removes the series of buckets that left and whose last deliveries have ended. The patrol calls it, which counts itself.
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

// check reports what buckets and hooks lack.
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
