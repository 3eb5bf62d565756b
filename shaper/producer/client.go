// Package producer enqueues jobs into buckets, and reads and cancels single jobs.
//
// A [Client] checks the limits and the bound of the bucket for each job, and puts the job into the bucket, in one atomic step. An enqueue is one
// round trip, which concurrent calls share. When Redis is down, it returns an error within [Config.Timeout].
package producer

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/trace"
	sometimes "golang.org/x/time/rate"

	"github.com/tundish-io/tundish/lua/coalesce"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/internal/tracing"
)

// Sizes of one enqueue script: large enough to make the round trip cheap, small enough that the script takes about a millisecond.
const (
	enqueueBatch      = 256
	enqueueBatchBytes = 1 << 20
	enqueueBatchFlows = 64 // each has lists, a turn and settings to read: with 256 the script took 12 ms
	enqueueTries      = 3
)

// Config configures a [Client].
type Config struct {
	Redis redis.UniversalClient // made by redisconn.Connect

	// Buckets are the buckets that get jobs. Dispatchers write their settings. The client creates missing settings, which the next dispatcher
	// replaces, and changes none that exist: it uses the effective ones, and logs once where these settings differ. If a dispatcher has written the
	// settings of a bucket, its name is enough: shaper.Bucket{Name: "webhooks"}.
	Buckets []shaper.Bucket
	Timeout time.Duration // of one call; 0 means DefaultTimeout
	Logger  *slog.Logger  // nil logs nothing

	// DispatcherHere says that a dispatcher of this process has the same buckets, and logs where its settings are not effective. Then the client does
	// not.
	DispatcherHere bool

	// Registerer is where the metrics go; nil counts nothing. Actors of one process may share it.
	Registerer prometheus.Registerer

	// Tracer, if not nil, makes a span for each job, "send" with the name of the bucket. The span travels with the job, in the header traceparent,
	// to the spans of its attempts: see the Config of package dispatcher. The job's own traceparent is the parent of the span, else the span
	// of the call's context is.
	Tracer trace.TracerProvider

	// Breaker, if not nil, makes Enqueue fail at once while Redis is known to be unavailable, instead of after Timeout. Share it among all users of
	// this Redis. In a cluster each bucket has a similar breaker of its own, because its node may fail alone.
	Breaker *redisconn.Breaker
}

// Client enqueues jobs, reads single jobs and cancels them. It is safe for concurrent use.
type Client struct {
	store   *store.Store
	tracer  trace.Tracer // nil: no spans
	breaker *redisconn.Breaker
	apart   bool // Redis is a cluster: each bucket has a breaker of its own

	changing sync.Mutex                                 // of a change of the buckets
	buckets  atomic.Pointer[map[string]*producerBucket] // by bucket; replaced by a reload

	sending func(*producerBucket, []*entry) (after func()) // sends a batch of a bucket: send

	calls   sync.Pool // of one job each, answered
	open    *coalesce.Calls
	queued  sync.WaitGroup // calls with jobs in a queue, also those whose callers gave up
	answers *answers
	shadows shadowLog
	looked  atomic.Int64        // when the client last read the effective settings, in nanoseconds; 0 never
	fullLog sometimes.Sometimes // for limits with MaxKeys keys
}

// Close waits until the running calls of [Client.Enqueue] are answered, also those whose callers gave up, which takes up to Config.Timeout. Every
// later call returns [shaper.ErrClosed]. It may be called several times, also concurrently with other calls. The Redis client stays open: it belongs
// to the caller.
func (c *Client) Close() {
	c.open.Close()
	c.queued.Wait()
	c.answers.close()
	c.store.Close()
	c.answers.wakeAll() // to find that the client is closed
}

// New checks the buckets and returns a client. It does not talk to Redis yet: the first call of a bucket reads the effective settings, or creates
// missing ones.
func New(cfg Config) (*Client, error) {
	s, err := store.New(store.ReadOnly, cfg.Redis, cfg.Buckets, cfg.Timeout, cfg.Logger, cfg.Registerer)
	if err != nil {
		return nil, err
	}
	s.Quiet = cfg.DispatcherHere
	_, isCluster := cfg.Redis.(*redis.ClusterClient)
	c := &Client{
		store: s, tracer: tracing.Tracer(cfg.Tracer), breaker: cfg.Breaker, apart: isCluster, open: coalesce.NewCalls(), answers: newAnswers(s), fullLog: sometimes.Sometimes{First: 1, Interval: 10 * time.Second},
	}
	c.sending = c.send
	c.buckets.Store(&map[string]*producerBucket{})
	c.setBuckets()
	return c, nil
}

// Bucket returns the settings of a bucket as far as this client knows them, or [shaper.ErrUnknownBucket]. Before the first job they are the
// configured ones: see [Client.InForce].
func (c *Client) Bucket(name string) (shaper.Bucket, error) {
	b, err := c.store.Bucket(name)
	if err != nil {
		return shaper.Bucket{}, err
	}
	return *b.Settings.Load(), nil
}

// CurrentName returns the name of the bucket that was renamed from the given one, as the configuration of this client says, else the given
// name. It makes no round trip.
func (c *Client) CurrentName(name string) string { return c.store.CurrentName(name) }

// InForce is Bucket with the settings that Redis has. It asks Redis where this client has not yet, and takes no round trip after that.
// When Redis is down it returns an error of [redisconn.Unavailable] after Config.Timeout at most, unless it asked before.
func (c *Client) InForce(ctx context.Context, name string) (shaper.Bucket, error) {
	if !c.open.Enter() {
		return shaper.Bucket{}, shaper.ErrClosed
	}
	defer c.open.Leave()
	if err := c.readSettings(ctx, name); err != nil {
		return shaper.Bucket{}, err
	}
	return c.Bucket(name)
}

// Reconfigure replaces the buckets, as if the client had been made with these. A bucket that is not among them is unknown from then on; its jobs stay
// in Redis. Settings that dispatchers have written stay as they are: see [Config]. Do not change afterwards what the buckets point to. It changes
// nothing and returns an error if a bucket is not valid. It makes no round trip, and may run concurrently with all other methods.
func (c *Client) Reconfigure(buckets []shaper.Bucket) error {
	c.changing.Lock()
	defer c.changing.Unlock()
	if err := c.store.Reconfigure(buckets); err != nil {
		return err
	}
	c.setBuckets()
	return nil
}

// Buckets returns the names of all buckets in the order of the configuration.
func (c *Client) Buckets() []string { return c.store.Names() }

// JobError is a fault of one job of a call; nothing of the call was sent.
type JobError struct {
	Index int
	Err   error
}

func (e *JobError) Error() string { return fmt.Sprintf("job %d: %v", e.Index, e.Err) }
func (e *JobError) Unwrap() error { return e.Err }

// Enqueue requests admission of each job to its bucket and returns a receipt for each, in order. For one job, limits, bound and push are one atomic
// step; the jobs of a call are decided one by one. A refusal is in the receipt.
//
// A job without an id gets one. An invalid job or an unknown bucket is an error ([JobError]) and nothing is sent. Any other error means that the
// outcome of at least one job is unknown, for example because Redis is down or too slow. The receipts then hold only the ids: enqueue the same ids
// again, and no job is duplicated. [redisconn.Unavailable] reports whether that may help.
//
// Concurrent calls for a bucket share round trips, and the callers of the jobs take turns; a lone call takes one round trip. When Redis is down it
// takes at most Config.Timeout. A job that has waited for its turn for Config.Timeout is not stored: it is refused with [shaper.ReasonOverloaded], or
// the call fails if Redis has answered nothing meanwhile. If ctx ends, jobs that wait for their turn are not stored either.
func (c *Client) Enqueue(ctx context.Context, jobs ...shaper.Job) ([]shaper.Receipt, error) {
	return c.enqueue(ctx, nil, jobs)
}

// enqueue is Enqueue. awaited, if not nil, waits for the result of the only job.
func (c *Client) enqueue(ctx context.Context, awaited *Awaited, jobs []shaper.Job) ([]shaper.Receipt, error) {
	if len(jobs) == 0 {
		return nil, nil
	}
	if c.tracer == nil {
		return c.admit(ctx, awaited, jobs)
	}
	sends := c.startSends(ctx, jobs)
	if awaited != nil {
		awaited.sent = sends.spans[0].SpanContext()
	}
	receipts, err := c.admit(ctx, awaited, sends.jobs)
	sends.end(receipts, err)
	return receipts, err
}

// admit is enqueue without its spans, for one job or more.
func (c *Client) admit(ctx context.Context, awaited *Awaited, jobs []shaper.Job) ([]shaper.Receipt, error) {
	if !c.open.Enter() {
		return nil, shaper.ErrClosed
	}
	defer c.open.Leave()
	shared := c.newCall(ctx, len(jobs))
	entries, queued := shared.entries, shared.queued
	var away error
	for i := range jobs {
		t := &entries[i]
		if away == nil {
			away = c.readSettings(ctx, jobs[i].Bucket)
		}
		t.job, t.call, t.receipt = jobs[i], shared, &shared.receipts[i]
		shared.mixed = shared.mixed || max(t.job.Cost, 1) != max(jobs[0].Cost, 1)
		if err := c.prepare(t, awaited); err != nil {
			c.release(shared)
			if away != nil { // perhaps the effective settings allow it
				return nil, away
			}
			return nil, &JobError{Index: i, Err: err}
		}
		queued[i] = t
	}
	if away == nil {
		queued, away = c.refuseUnknownBundles(ctx, queued)
	}
	if away != nil {
		receipts := onlyIDs(entries)
		c.release(shared)
		return receipts, away
	}
	if len(queued) == 0 { // each has its refusal
		receipts := shared.receipts
		c.release(shared)
		return receipts, nil
	}
	shared.queued = queued // without the jobs of unknown bundles
	shared.left.Store(int64(len(queued)))
	c.queued.Add(1)
	if err := c.sendInTime(ctx, shared); err != nil {
		return onlyIDs(entries), err
	}
	receipts, err := shared.receipts, shared.err.Load()
	if err != nil {
		receipts = onlyIDs(entries)
	} else if len(receipts) > 1 {
		keepOwnDuplicates(receipts)
	}
	c.release(shared)
	if err != nil {
		return receipts, *err
	}
	return receipts, nil
}

// onlyIDs returns the receipts of jobs whose outcome is unknown.
func onlyIDs(entries []entry) []shaper.Receipt {
	receipts := make([]shaper.Receipt, len(entries))
	for i := range entries {
		job := &entries[i].job
		receipts[i] = shaper.Receipt{ID: job.ID, Bucket: job.Bucket, Flow: job.Flow, Group: job.Group}
	}
	return receipts
}

// prepare checks a job, names it and packs it. With awaited, it waits for the result, or the ticket, from then on.
func (c *Client) prepare(t *entry, awaited *Awaited) error {
	b, err := c.bucket(t.job.Bucket)
	if err != nil {
		return err
	}
	t.bucket, t.job.Bucket = b, b.Name
	settings := b.Settings.Load()
	if t.job.Flow, t.job.Group, err = settings.Check(&t.job); err != nil {
		return err
	}
	if t.job.ID == "" {
		t.job.ID, t.generated = newID(), true
	}
	how := codec.Sealing{
		IsGenerated: t.generated, HasCallback: settings.Callbacks.Has(&t.job) && !codec.IsMade(t.job.ID), HasBatches: settings.Batch.Has(),
	}
	switch {
	case awaited == nil:
	case awaited.tickets != nil:
		how.Sender, t.job.Headers = c.answers.channel, nil // the flow is named
	default:
		how.Waiter = c.answers.channel
	}
	if awaited != nil {
		c.answers.await(awaited, t.job.Bucket, t.job.ID)
	}
	t.sealed, err = codec.Seal(t.sealed, &t.job, how)
	return err
}

// newID returns a UUID of version 7 (RFC 9562): the time in milliseconds, then randomness, unpredictable though not for secrets. The library takes a
// lock and a system call for each, which is 5 % of the cost of an enqueue.
func newID() string {
	var id uuid.UUID
	const millisecondsEnd = 16                                                                                              // bits
	binary.BigEndian.PutUint64(id[:8], uint64(time.Now().UnixMilli())<<millisecondsEnd|rand.Uint64()>>(64-millisecondsEnd)) //nolint:gosec // names, not secrets
	binary.BigEndian.PutUint64(id[8:], rand.Uint64())                                                                       //nolint:gosec // as above
	id[6] = id[6]&0x0f | 7<<4
	id[8] = id[8]&0x3f | 2<<6
	return id.String()
}

// Job returns the state of a job, or [shaper.ErrNotFound]. The bucket may have been removed from the configuration, or live elsewhere;
// [shaper.ErrUnknownBucket] if Redis does not know it either. One round trip; one more if the bucket has flows, one if this client has not used it
// yet, and one if there is no such job.
func (c *Client) Job(ctx context.Context, bucket, id string) (shaper.JobInfo, error) {
	return c.store.Job(ctx, bucket, id)
}

// Cancel cancels a job that waits and returns its state afterwards: [shaper.StateCancelled] if that worked, now or earlier; any other state says why
// not. [shaper.ErrNotFound] if there is no such job. One round trip; two if the bucket has flows.
func (c *Client) Cancel(ctx context.Context, bucket, id string) (shaper.State, error) {
	return c.store.Cancel(ctx, bucket, id, "")
}

// Ping checks that Redis responds: in a cluster, that any master does. One round trip.
func (c *Client) Ping(ctx context.Context) error { return c.store.Ping(ctx) }

// Probe finds out what is wrong with Redis: [redisconn.FailureOf] names it. It pings, and runs a script that writes. Two round trips.
func (c *Client) Probe(ctx context.Context) error { return c.store.Probe(ctx) }

// JoinPools reads the effective settings of every bucket, and where it lives. It creates buckets that Redis does not know, and changes nothing of
// others: a dispatcher moves a bucket to another pool, see the method JoinPools of [dispatcher.Dispatcher]. The first use of a bucket does the same.
// Each round trip takes at most Config.Timeout; an existing bucket needs two.
//
// [dispatcher.Dispatcher]: https://pkg.go.dev/github.com/tundish-io/tundish/shaper/dispatcher#Dispatcher
func (c *Client) JoinPools(ctx context.Context) error {
	err := c.store.JoinPools(ctx)
	c.changing.Lock()
	defer c.changing.Unlock()
	c.setBuckets()
	return err
}

// CheckPools reports the buckets that cannot change their pool as these settings ask, because they are not empty in a Redis Cluster: an
// [shaper.ErrTagChanged] that says what they hold. It changes nothing.
func (c *Client) CheckPools(ctx context.Context, buckets []shaper.Bucket) error {
	return c.store.CheckPools(ctx, buckets)
}
