package dispatcher

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tundish-io/tundish/shaper/internal/store"
)

// bucketLoop does all work of a dispatcher for one bucket: it claims and delivers jobs, settles outcomes, sweeps and trims, sends events and
// callbacks, and fires schedules.
type bucketLoop struct {
	*bucketConn
	held       *leaseHolder
	settler    *settler
	deliveries *deliverer
	claims     *claimer
	patrol     *bucketPatrol
	callbacks  *callbackMover
	schedules  *scheduler
	shared     *store.Store // the store, for scripts of many buckets that share round trips

	shutdown time.Duration           // how long a stop waits for deliveries
	kill     context.CancelCauseFunc // ends life
	stop     context.CancelFunc      // stops the loop; nil if it is not run
	news     atomic.Bool             // a wake-up has arrived since the effective settings were last checked
	late     time.Time               // the finish that will not be met, as last logged; used by foresee
	noWindow bool                    // at the last check the bucket had no tally of a window; used by renewTimetables

	claimed             atomic.Bool // the last claim has ended: set before claiming is done
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
	l.patrol.events = eventSender{bucketConn: l.bucketConn, shared: d.shared, hooks: &d.hooks, enqueue: d.cfg.Enqueue}
	l.schedules = &scheduler{bucketConn: l.bucketConn, shared: d.shared, claims: l.claims.wake, estimate: d.cfg.Estimate}
	return l
}

// run drains until ctx ends, and then until the last outcome is settled.
func (l *bucketLoop) run(ctx context.Context) error {
	defer l.kill(nil)
	var err error
	l.claiming.Add(1)
	l.finishing.Add(1)
	context.AfterFunc(ctx, func() { // in parallel with the last claim, which may wait for Redis
		defer l.finishing.Done()
		err = l.finish()
	})
	l.claims.loop(ctx, l.shared)
	l.claimed.Store(true)
	l.claiming.Done()
	l.finishing.Wait()
	l.callbacks.moveLast()
	l.kill(errStopped)
	l.held.extender.wait()
	l.deliveries.handovers.asks.wait()
	l.callbacks.moves.wait()
	return err
}

// finish waits for the last claim and for deliveries, cancels deliveries that take too long, and waits until Redis has taken their outcomes. An
// unresponsive Redis delays it by at most [settleGrace] and [killGrace] beyond the shutdown timeout. A call to Redis cannot be interrupted, so
// senders stop early enough: no last step of a stop waits for the call of another step.
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
	if within(ended, l.shutdown) { // only outcomes remain
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
		return fmt.Errorf("dispatcher: bucket %q: deliveries go on after they were cancelled: a worker ignores its context", l.Name)
	}
	return fmt.Errorf("dispatcher: bucket %q: Redis did not answer the last claim: its jobs are delivered when their leases end", l.Name)
}
