package dispatcher

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tundish-io/tundish/shaper/internal/store"
)

// bucketLoop is all that a dispatcher does for one bucket: it claims and delivers jobs, settles their outcomes, looks after what was lost or
// is old, and tells of events, callbacks and schedules.
type bucketLoop struct {
	*bucketConn
	held       *leaseHolder
	settler    *settler
	deliveries *deliverer
	claims     *claimer
	patrol     *bucketPatrol
	callbacks  *callbackMover
	schedules  *scheduler
	shared     *store.Store // the store, for what is done for all buckets side by side

	shutdown time.Duration           // how long a stop waits for deliveries
	kill     context.CancelCauseFunc // ends life
	stop     context.CancelFunc      // has the loop stop; nil of one that is not run
	news     atomic.Bool             // since the last look at what is in force there was a wake-up
	late     time.Time               // the finish that will not be met, as last logged; of foresee
	noWindow bool                    // when last looked at, the bucket had no tally of a window; of renewTimetables

	claimed             atomic.Bool // the last claim has ended, as claiming says
	claiming, finishing sync.WaitGroup
}

func newBucketLoop(d *Dispatcher, b *store.Bucket, life context.Context) *bucketLoop {
	l := &bucketLoop{shutdown: d.cfg.ShutdownTimeout, shared: d.shared}
	life, l.kill = context.WithCancelCause(life)
	l.bucketConn = newBucketConn(b, d.store, d.cfg.Lease, life, &d.outage)
	l.callbacks = newCallbackMover(l.bucketConn, d.cfg.Enqueue)
	deaths := &deaths{callbacks: l.callbacks}
	l.held = newLeaseHolder(l.bucketConn, &d.guard)
	l.settler = newSettler(l.held, deaths, l.callbacks)
	l.deliveries = newDeliverer(l.settler, d.workers[b.Name], d.cfg.Concurrency)
	l.deliveries.spans, l.deliveries.faultLog = d.spans, &d.faultLog
	l.claims = newClaimer(l.deliveries, deaths)
	l.patrol = newBucketPatrol(l.claims, deaths, d.shared, &d.stall)
	l.patrol.events = eventTeller{bucketConn: l.bucketConn, shared: d.shared, hooks: &d.hooks, enqueue: d.cfg.Enqueue}
	l.schedules = &scheduler{bucketConn: l.bucketConn, shared: d.shared, claims: l.claims.wake, estimate: d.cfg.Estimate}
	return l
}

// run drains until ctx ends, and then until the last outcome is settled.
func (l *bucketLoop) run(ctx context.Context) error {
	defer l.kill(nil)
	var err error
	l.claiming.Add(1)
	l.finishing.Add(1)
	context.AfterFunc(ctx, func() { // beside the last claim, which may wait for Redis
		defer l.finishing.Done()
		err = l.finish()
	})
	l.claims.loop(ctx, l.shared)
	l.claimed.Store(true)
	l.claiming.Done()
	l.finishing.Wait()
	l.callbacks.moveLast()
	l.kill(errStopped)
	l.held.beat.wait()
	l.deliveries.handovers.asks.wait()
	l.callbacks.tells.wait()
	return err
}

// finish waits for the last claim and for deliveries, cancels those that take too long, and sees their outcomes into Redis. A Redis that is silent
// delays it by [settleGrace] and [killGrace] at most, beyond the shutdown timeout. A call to Redis that is under way cannot be ended, so what
// sends calls ends in time before that: no last step of a stop begins with the wait for the call of another step.
func (l *bucketLoop) finish() error {
	ended, settled := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(settled)
		l.claiming.Wait()
		l.deliveries.underWay.Wait()
		close(ended)
		l.settler.queue.Wait()
	}()
	within := func(done <-chan struct{}, limit time.Duration) bool {
		select {
		case <-done:
			return true
		case <-time.After(limit):
			return false
		}
	}
	began := time.Now()
	patience := settleGrace
	if within(ended, l.shutdown) { // only outcomes are left
		patience = max(min(l.shutdown-time.Since(began), settlePatience), settleGrace)
	} else {
		l.log.Warn("deliveries did not end in time and were cut off", "count", l.held.interrupt(), "shutdown_timeout", l.shutdown)
	}
	if within(settled, patience-settleGrace) {
		return nil
	}
	l.held.endHeartbeat()
	if within(settled, settleGrace) {
		return nil
	}
	l.kill(errStopped)
	if within(settled, killGrace) || within(ended, time.Millisecond) {
		return fmt.Errorf("dispatcher: bucket %q: Redis did not take the last outcomes within %s: their jobs are delivered again when their leases end",
			l.Name, patience.Round(time.Millisecond))
	}
	if l.claimed.Load() {
		return fmt.Errorf("dispatcher: bucket %q: deliveries go on though they were told to end: a worker ignores its context", l.Name)
	}
	return fmt.Errorf("dispatcher: bucket %q: Redis did not answer the last claim: its jobs are delivered when their leases end", l.Name)
}
