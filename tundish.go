// Package tundish enqueues jobs into a bucket, and works them at an even rate over all programs that share a Redis.
//
// A bucket has a name, and its jobs carry one type:
//
//	var letters = tundish.Define[Letter]("letters")
//
// Any program can enqueue jobs:
//
//	t, err := tundish.Open("redis://localhost:6379/0")
//	receipt, err := letters.Enqueue(ctx, t, Letter{To: "ada"})
//	receipts, err := t.Enqueue(ctx, jobs...) // many at once, each of letters.Job(payload)
//
// The program that works the jobs sets the rate and the other settings of the bucket. Run any number of copies: all together keep the rate.
//
//	t.Handle(letters.Work(tundish.Settings{Rate: "20/s"}, send)) // send: func(context.Context, Letter) error
//	err = t.Run(ctx)                                              // until ctx ends
//
// If send returns an error, the job is retried later, with growing waits. [RetryIn], [Hold], [Dead] and [Skip] choose another outcome. A job is
// delivered at least once, and again if the program dies meanwhile. So send has to be idempotent: the ID of [AttemptOf] identifies the job.
//
// A limit paces calls that a program makes itself, and requests that it serves:
//
//	api, err := t.Limit("vendor-api", "10/s")
//	err = api.Wait(ctx, "")          // before each call
//	handler = api.Middleware(handler) // 429 above the limit, for each client
//
// Everything else is in the packages that this one wraps. [shaper.Bucket] has all settings of a bucket, and [Settings] changes them. Packages producer,
// dispatcher and operator below shaper enqueue, work and inspect. Package admission has limits. Workers that send webhooks, call HTTP APIs or feed asynq
// are below workers, and [Deliver] takes them. Package tundishfile loads the configuration of the programs, and tundishtest is for tests.
package tundish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
	"github.com/tundish-io/tundish/shaper/producer"
)

// Types of the packages below, for programs that import this package alone.
type (
	// Job is one unit of work to enqueue.
	Job = shaper.Job
	// Receipt is the response for one job.
	Receipt = shaper.Receipt
	// Attempt is one delivery of a job.
	Attempt = shaper.Attempt
	// RefusedError says that a job was refused, and why.
	RefusedError = producer.RefusedError
)

// Client is a program's connection to the buckets and limits of one Redis. It is safe for concurrent use.
type Client struct {
	cfg      Config
	owned    bool // the connection is this client's to close
	producer *producer.Client
	limiter  *admission.Limiter

	mu       sync.Mutex
	buckets  map[string]shaper.Bucket // that the producer knows
	handlers map[string]Handler
	limits   []admission.Limit // that the limiter knows
	revision int64             // of them
	faults   []error           // of handlers
	runs     bool
}

// Config holds what a [Client] needs: a Redis, or the URL of one.
type Config struct {
	Redis      redis.UniversalClient // made by [redisconn.Connect]; it stays the caller's to close
	URL        string                // if Redis is nil: see [redisconn.Connect]
	Connection redisconn.Options     // to URL
	Log        *slog.Logger          // nil logs nothing
	Registerer prometheus.Registerer // receives the metrics; nil shows none

	// Producer, Dispatcher and Limiter change any setting of those, right before they are made. Each may be nil.
	Producer   func(*producer.Config)
	Dispatcher func(*dispatcher.Config)
	Limiter    func(*admission.LimiterConfig)
}

// Open returns a client for the Redis at a URL of [redisconn.Connect], which logs to [slog.Default]. It makes no round trip: if Redis is down, the first
// call returns the error. Close the client at the end.
func Open(url string) (*Client, error) {
	log := slog.Default()
	return New(Config{URL: url, Connection: redisconn.Options{Logger: log}, Log: log})
}

// New is [Open] with all options. It makes no round trip.
func New(cfg Config) (*Client, error) {
	c := &Client{cfg: cfg, buckets: map[string]shaper.Bucket{}, handlers: map[string]Handler{}}
	if cfg.Registerer == nil {
		c.cfg.Registerer = prometheus.NewRegistry() // the fleet needs its counts
	}
	if c.cfg.Log == nil {
		c.cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Redis == nil {
		conn, err := redisconn.Connect(cfg.URL, cfg.Connection)
		if err != nil {
			return nil, fmt.Errorf("tundish: %w", err)
		}
		c.cfg.Redis, c.owned = conn, true
	}
	if err := c.open(); err != nil {
		if c.owned {
			err = errors.Join(err, c.cfg.Redis.Close())
		}
		return nil, fmt.Errorf("tundish: %w", err)
	}
	return c, nil
}

// open opens the clients on the connection.
func (c *Client) open() (err error) {
	cfg := &c.cfg
	breaker := redisconn.NewBreaker(redisconn.BreakerConfig{Logger: cfg.Log})
	p := producer.Config{Redis: cfg.Redis, Logger: cfg.Log, Registerer: cfg.Registerer, Breaker: breaker}
	if cfg.Producer != nil {
		cfg.Producer(&p)
	}
	for _, b := range p.Buckets {
		c.buckets[b.Name] = b
	}
	l := admission.LimiterConfig{Redis: cfg.Redis, Logger: cfg.Log, Breaker: breaker}
	if cfg.Limiter != nil {
		cfg.Limiter(&l)
	}
	c.limits, c.revision = l.Limits, l.Revision
	if c.producer, err = producer.New(p); err != nil {
		return err
	}
	c.limiter, err = admission.NewLimiter(l)
	return err
}

// Close waits for the calls under way, and closes the connection that it made itself. End [Client.Run] before, by its context.
func (c *Client) Close() error {
	c.producer.Close()
	c.limiter.Close()
	if !c.owned {
		return nil
	}
	return c.cfg.Redis.Close()
}

// Producer returns the client that enqueues, for functions that this package lacks: results, cancelling, reading a job. It knows the buckets that were
// used or handled.
func (c *Client) Producer() *producer.Client { return c.producer }

// Redis is the connection, for package operator.
func (c *Client) Redis() redis.UniversalClient { return c.cfg.Redis }

// Limiter returns the limiter of all limits of [Client.Limit], by their names, for functions that this package lacks.
func (c *Client) Limiter() *admission.Limiter { return c.limiter }

// Enqueue enqueues jobs, of any buckets: see [producer.Client.Enqueue], and [Bucket.Job], which builds one. A refusal is in the receipt here.
func (c *Client) Enqueue(ctx context.Context, jobs ...Job) ([]Receipt, error) {
	for i := range jobs {
		if err := c.know(jobs[i].Bucket); err != nil {
			return nil, &producer.JobError{Index: i, Err: err}
		}
	}
	return c.producer.Enqueue(ctx, jobs...)
}

// know adds a bucket to the producer. For a bucket that this program does not work, the name is enough: its settings are in Redis.
func (c *Client) know(bucket string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.buckets[bucket]; known {
		return nil
	}
	return c.configure(shaper.Bucket{Name: bucket})
}

func (c *Client) configure(bucket shaper.Bucket) error {
	all := maps.Clone(c.buckets)
	all[bucket.Name] = bucket
	if err := c.producer.Reconfigure(slices.Collect(maps.Values(all))); err != nil {
		return fmt.Errorf("bucket %q: %w", bucket.Name, err)
	}
	c.buckets = all
	return nil
}

// Handle adds handlers for [Client.Run], one for each bucket. Call it before Run, and before this program enqueues into the bucket. Run returns an error
// for an invalid handler.
func (c *Client) Handle(handlers ...Handler) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range handlers {
		name := h.bucket.Name
		_, twice := c.handlers[name]
		switch {
		case c.runs:
			c.faults = append(c.faults, fmt.Errorf("bucket %q: its handler came while Run was running: give it to Handle before", name))
		case h.err != nil:
			c.faults = append(c.faults, fmt.Errorf("bucket %q: %w", name, h.err))
		case twice:
			c.faults = append(c.faults, fmt.Errorf("bucket %q: has two handlers: give Handle one", name))
		default:
			if err := c.configure(h.bucket); err != nil {
				c.faults = append(c.faults, err)
				continue
			}
			c.handlers[name] = h
		}
	}
}

// Run works the jobs of all handlers, each bucket at its rate, until ctx ends. Then it claims no more, waits for deliveries under way (30 s at most),
// and returns nil. While Redis is away, Run waits and goes on when Redis is back. An error means an invalid handler: no job was worked.
func (c *Client) Run(ctx context.Context) error {
	d, err := c.dispatcher()
	if err != nil {
		return err
	}
	defer func() {
		c.mu.Lock()
		c.runs = false
		c.mu.Unlock()
	}()
	return d.Run(ctx)
}

func (c *Client) dispatcher() (*dispatcher.Dispatcher, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.runs:
		return nil, errors.New("tundish: Run is running already: one for a client is enough, for all its handlers")
	case len(c.faults) > 0:
		return nil, fmt.Errorf("tundish: %w", errors.Join(c.faults...))
	case len(c.handlers) == 0:
		return nil, errors.New("tundish: Run has nothing to work: call Handle before, with a Bucket.Work for each bucket")
	}
	cfg := dispatcher.Config{
		Redis: c.cfg.Redis, Logger: c.cfg.Log, Registerer: c.cfg.Registerer, Enqueue: c.producer.Enqueue, Program: filepath.Base(os.Args[0]),
		Workers: make(map[string]shaper.Worker, len(c.handlers)),
	}
	for name, h := range c.handlers {
		cfg.Buckets = append(cfg.Buckets, h.bucket)
		cfg.Workers[name] = h.worker
	}
	if c.cfg.Dispatcher != nil {
		c.cfg.Dispatcher(&cfg)
	}
	d, err := dispatcher.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("tundish: %w", err)
	}
	c.runs = true
	return d, nil
}
