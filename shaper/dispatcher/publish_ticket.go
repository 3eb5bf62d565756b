package dispatcher

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

// ticketTries is how many slots a self-dispatched job gets before it is dropped. A ticket message may be lost: the job then waits for the next slot,
// at the head of its queue. A process that has died starts none of its tickets.
const ticketTries = 3

// reasonNoSender is the reason of a dropped job that no process sends.
const reasonNoSender = "no_sender"

// publishTicket publishes the ticket of a job to its sender as soon as it is claimed, so a far Redis adds no lateness. It returns the outcome of a job
// that is not started in time: returned to the head of its queue, or dropped. For a started job, Redis ignores this outcome.
func (v *deliverer) publishTicket(job *leased) shaper.Outcome {
	ctx, cancel := context.WithCancelCause(v.life)
	defer cancel(nil)
	v.held.delivering(request{job}, cancel)
	within, stop := context.WithTimeout(ctx, v.store.Timeout)
	receivers, err := v.store.Redis.Publish(within, job.sender, codec.TicketMessage(v.Keys.Name, job.ID, v.ticketOf(job))).Result()
	stop()
	_, isCluster := v.store.Redis.(*redis.ClusterClient) // in a cluster, receivers counts only subscribers at one node
	switch {
	case err != nil:
		return shaper.Returned(reasonNotStarted)
	case receivers == 0 && !isCluster:
		return noSender()
	}
	sleep(ctx, time.Until(job.slot.Add(job.ticketValidFor())))
	if job.epoch >= ticketTries {
		return noSender()
	}
	return shaper.Returned(reasonNotStarted)
}

func noSender() shaper.Outcome {
	outcome := shaper.Dropped(reasonNoSender, "the process that was to send the job did not start it: it has died, or does not hear Redis")
	outcome.Used = shaper.Units{} // nothing was sent
	return outcome
}

// late returns how long after its slot a self-dispatched job may be started and sent here.
func (c *bucketConn) late(t *ticket) time.Duration {
	shortest, _ := c.clock.rtt()
	return t.late(shortest)
}

// permit gives a self-dispatched job, which is started here, the permit of its ticket. ctx ends with the lease.
func (c *bucketConn) permit(ctx context.Context, t *ticket, job *leased) {
	job.slot, job.permitTTL, job.wakeLimit = c.clock.local(t.Slot), micros(t.Lasts), c.late(t)
	job.depart = func(time.Duration) { c.departs(job) }
	c.departures.setInterval(micros(t.Every))
	job.Permit(job.slot, job.validFor(), job.depart)
	job.Space(func() bool { return c.departures.wait(ctx, c.Settings.Load(), job) })
	job.Clock(c.redisNow)
}
