package dispatcher

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	sometimes "golang.org/x/time/rate"

	"github.com/tundish-io/tundish/shaper/internal/store"
)

func newBucketLoop(d *Dispatcher, b *store.Bucket, life context.Context) *bucketLoop {
	worker := d.workers[b.Name]
	r := &bucketLoop{
		Bucket: b, store: d.store, shared: d.shared, via: d.store, log: d.store.Log.With("bucket", b.Name),
		dispatcher: store.ShortID(rand.Uint64()), lease: d.cfg.Lease, shutdown: d.cfg.ShutdownTimeout, concurrency: d.cfg.Concurrency, //nolint:gosec // a name, not a secret
		outage: &d.outage, stall: &d.stall, guard: &d.guard, hooks: &d.hooks, enqueue: d.cfg.Enqueue, clock: newClock(), wake: make(chan struct{}, 1), told: make(chan struct{}, 1),
		waitingLog: sometimes.Sometimes{First: 1, Interval: time.Minute}, link: newSlowLink(), held: make(map[string]*leased),
	}
	r.worker.Store(&worker)
	r.life, r.kill = context.WithCancelCause(life)
	r.sweeps.nextAudit = time.Now().Add(rand.N(auditInterval)) //nolint:gosec // spread
	if _, ok := d.store.Redis.(*redis.ClusterClient); ok {     // one node may fail and others not
		r.outage = &outage{log: r.log}
	}
	r.settler = settlerOf(r)
	r.beat = helper{within: r.life, do: r.heartbeat}
	r.asks = helper{within: r.life, do: r.lookAfterHandedOver}
	return r
}

// run drains until ctx ends, and then until the last outcome is settled.
func (d *bucketLoop) run(ctx context.Context) error {
	defer d.kill(nil)
	if d.enqueue != nil {
		d.mu.Lock()
		d.tells = helper{within: ctx, do: d.tellCallbacks}
		d.mu.Unlock()
	}
	d.loop(ctx)
	err := d.finish()
	d.tellLast()
	d.kill(errStopped)
	d.endHelpers()
	return err
}

// loop claims until ctx ends. One claim is under way at a time; the next one
// is sent when half of the horizon is left, so that round trips cost no slots.
func (d *bucketLoop) loop(ctx context.Context) {
	claimID := store.ShortID(rand.Uint64()) //nolint:gosec // a name, not a secret
	faultWait := minFaultWait
	d.via = d.shared
	timer := time.NewTimer(firstClaim)
	defer timer.Stop()
	var start time.Time
	for {
		select {
		case <-ctx.Done():
		case <-d.wake:
			d.idle.woken()
		case <-timer.C:
		}
		if ctx.Err() != nil { // whatever else was ready: a stop claims no more
			d.fetchUnanswered(d.life, claimID)
			return
		}
		if soon := max(claimSpacing-time.Since(start), time.Until(d.pause)); soon > 0 {
			timer.Reset(soon)
			continue
		}
		want := d.free()
		if want == 0 {
			timer.Reset(idleClaim) // a worker that becomes free nudges
			continue
		}
		// The first claim only learns the clock of Redis: if it were slow, its slots could be earlier than they look by half of it. It also says
		// whether there is something to claim. The first claims of all buckets share round trips: they bring no jobs.
		learns := !d.clock.isKnown()
		if learns {
			want = 0
		}
		start = time.Now()
		// A claim outlives a stop: what it got is delivered, not left to its lease.
		wait, err := d.claim(d.life, claimID, want)
		d.via = d.store
		if err != nil {
			d.keepUnanswered()
			// The same claim id again: it answers what was lost.
			if !d.elsewhere.tell(ctx, d.log, err) {
				d.outage.failed(ctx, start, err)
			}
			wait = faultWait/2 + rand.N(faultWait/2) //nolint:gosec // jitter
			faultWait = min(2*faultWait, maxFaultWait)
		} else {
			d.elsewhere.back(ctx, d.log)
			d.outage.worked(ctx, start, d.lease)
			claimID, faultWait = store.ShortID(rand.Uint64()), minFaultWait //nolint:gosec // a name, not a secret
		}
		d.setSleeping(err == nil && wait >= idleClaim && !d.closed)
		timer.Reset(max(wait, 0))
	}
}

// finish waits for deliveries, cancels those that take too long, and sees
// their outcomes into Redis.
func (d *bucketLoop) finish() error {
	idle := make(chan struct{})
	go func() {
		defer close(idle)
		d.deliveries.Wait()
		d.settler.Wait()
	}()
	timer := time.NewTimer(d.shutdown)
	defer timer.Stop()
	select {
	case <-idle:
		return nil
	case <-timer.C:
	}
	d.log.Warn("deliveries did not end in time and were cut off", "count", d.interrupt(), "shutdown_timeout", d.shutdown)
	timer.Reset(settleGrace)
	select {
	case <-idle:
		return nil
	case <-timer.C:
	}
	d.kill(errStopped)
	timer.Reset(killGrace)
	select {
	case <-idle:
		return fmt.Errorf("dispatcher: bucket %q: Redis did not take the last outcomes within %s: their jobs are delivered again when their leases end", d.Name, settleGrace)
	case <-timer.C:
		return fmt.Errorf("dispatcher: bucket %q: deliveries go on though they were told to end: a worker ignores its context", d.Name)
	}
}

// heartbeat extends the leases of all jobs held and of the claim under way, three
// times a lease, until there are none or ctx ends. A delivery whose lease is lost is cancelled:
// somebody else has it.
func (d *bucketLoop) heartbeat(ctx context.Context) {
	holdsNothing := func() bool { return len(d.held) == 0 && d.unknown == "" }
	for sleep(ctx, d.heartbeatEvery()); !d.ends(&d.beat, holdsNothing); sleep(ctx, d.heartbeatEvery()) {
		jobs, claimID := d.heldNow(), d.unansweredClaim()
		for len(jobs) > 0 || claimID != "" {
			n := min(len(jobs), heartbeatBatch)
			began := time.Now()
			if err := d.extend(ctx, jobs[:n], claimID); err == nil {
				d.outage.worked(ctx, began, d.lease)
			} else if ctx.Err() == nil {
				d.outage.failed(ctx, began, err)
			}
			jobs, claimID = jobs[n:], ""
		}
	}
}
