// Package load is the load generator: it posts jobs to the HTTP API, as many as
// are wanted at the rate that is wanted, and says how they were answered.
package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tundish-io/tundish/internal/progress"
)

// Bounds of the options.
const (
	MaxJobs        = 1_000_000_000
	MaxRate        = 1_000_000
	MaxConcurrency = 10_000
	MaxBatch       = 1000 // what the API takes
	MinSize        = 2    // an empty JSON string
	MaxSize        = 8 << 20
	maxBatchBytes  = 8 << 20 // what the API takes
	envelopeBytes  = 128     // of a job in a batch, its payload and url apart
)

// lineEvery is how often progress is told where it cannot be drawn in place.
const lineEvery = 5 * time.Second

// ErrUnreachable says that the server never answered.
var ErrUnreachable = errors.New("load: the server does not answer")

// Options is what a run may choose.
type Options struct {
	Server string // base URL of the API, such as http://127.0.0.1:8080
	Bucket string
	URL    string // where the jobs are to be delivered; "" leaves that to the bucket
	Key    string // API key; "" sends none

	Priority string // of all jobs; "" leaves it to the server

	Jobs        int           // to send in all
	Rate        float64       // jobs a second; 0 means as fast as it goes
	Concurrency int           // requests at a time, each on a connection of its own
	Batch       int           // jobs in a request; 1 uses the endpoint for single jobs
	Size        int           // bytes of a payload, which is a JSON string
	Timeout     time.Duration // of one request

	// WaitOn429 sends a refused job again after the time that the server asks
	// for, until it is in. Without it a refusal is an answer like any other.
	WaitOn429 bool
}

// DefaultOptions returns 1000 jobs of 256 bytes, as fast as 16 connections go.
// Server and Bucket have no default.
func DefaultOptions() Options {
	return Options{Jobs: 1000, Concurrency: 16, Batch: 1, Size: 256, Timeout: 10 * time.Second}
}

// Validate reports every fault of the options, joined, or nil.
func (o Options) Validate() error {
	var errs []error
	fail := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...)))
	}
	inRange := func(key string, value, low, high int) {
		if value < low || value > high {
			fail(key, "%d: want %d to %d", value, low, high)
		}
	}
	if u, err := url.Parse(o.Server); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		fail("server", "%q: want a URL such as http://127.0.0.1:8080", o.Server)
	}
	if o.Bucket == "" {
		fail("bucket", "is missing")
	}
	inRange("jobs", o.Jobs, 1, MaxJobs)
	inRange("concurrency", o.Concurrency, 1, MaxConcurrency)
	inRange("batch", o.Batch, 1, MaxBatch)
	inRange("size", o.Size, MinSize, MaxSize)
	if bytes := o.Batch * (o.Size + len(o.URL) + envelopeBytes); o.Batch > 1 && bytes > maxBatchBytes {
		fail("batch", "%d jobs of %d bytes make a request of about %d bytes: at most %d are taken", o.Batch, o.Size, bytes, maxBatchBytes)
	}
	if !(o.Rate >= 0 && o.Rate <= MaxRate) { // so that NaN is refused
		fail("rate", "%g: want 0 to %d", o.Rate, MaxRate)
	}
	if o.Timeout <= 0 {
		fail("timeout", "%s: want more than 0s", o.Timeout)
	}
	return errors.Join(errs...)
}

// Run sends the jobs and reports. A line on out shows the progress.
//
// With a rate the schedule is open: each request has an instant at which it
// should start, and its latency counts from there, also when all connections
// were busy then. So a server that stalls is not asked less and does not look
// better for it ("coordinated omission"). Without a rate each connection sends
// its next request when the last one is answered.
//
// Run makes the ids. A request that failed, or was answered 503, may have been
// taken: it is sent again with the same ids a few times, which doubles no job.
//
// When ctx ends, Run returns what was seen so far and the cause. It gives up
// with [ErrUnreachable] when a request has failed for good and none was
// answered yet.
func Run(ctx context.Context, opts Options, out io.Writer) (Report, error) {
	if err := opts.Validate(); err != nil {
		return Report{}, fmt.Errorf("load: %w", err)
	}
	transport := newTransport(opts)
	defer transport.CloseIdleConnections()
	return run(ctx, opts, transport, out)
}

func run(ctx context.Context, opts Options, transport http.RoundTripper, out io.Writer) (Report, error) {
	sending, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)

	start := time.Now()
	t := newTally(start)
	s := newSender(opts, transport, t, giveUp)

	watched, hide := context.WithCancel(ctx)
	var showing, working sync.WaitGroup
	showing.Go(func() {
		progress.Show(watched, out, lineEvery, func() string { return t.line(opts.Jobs, time.Now()) })
	})
	var taken atomic.Int64
	requests := (opts.Jobs + opts.Batch - 1) / opts.Batch
	for range min(opts.Concurrency, requests) {
		working.Go(func() {
			for sending.Err() == nil {
				first := int(taken.Add(1)-1) * opts.Batch
				if first >= opts.Jobs {
					return
				}
				intended := time.Now()
				if opts.Rate > 0 {
					intended = start.Add(time.Duration(float64(first) / opts.Rate * float64(time.Second)))
				}
				if wait(sending, time.Until(intended)) != nil {
					return
				}
				s.send(sending, min(opts.Batch, opts.Jobs-first), intended)
			}
		})
	}
	working.Wait()
	hide()
	showing.Wait()
	return t.report(time.Now()), context.Cause(sending)
}

// wait returns after d, or with an error when ctx ends before.
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func newTransport(opts Options) *http.Transport {
	return &http.Transport{
		MaxIdleConns:        opts.Concurrency,
		MaxIdleConnsPerHost: opts.Concurrency,
		MaxConnsPerHost:     opts.Concurrency,
		DisableCompression:  true,
	}
}

// endpoint is where requests go.
func (o Options) endpoint() string {
	endpoint := strings.TrimRight(o.Server, "/") + "/v1/buckets/" + url.PathEscape(o.Bucket) + "/jobs"
	if o.Batch > 1 {
		endpoint += "/batch"
	}
	return endpoint
}
