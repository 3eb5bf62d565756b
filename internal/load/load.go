// Package load is the load generator: it posts a number of jobs to the HTTP API, at a rate, and reports the results.
package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
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
	MaxFlows       = 10_000_000
	MaxBatch       = 1000 // the bound of the API
	MinSize        = 2    // an empty JSON string
	MaxSize        = 8 << 20
	maxBatchBytes  = 8 << 20 // the bound of the API
	envelopeBytes  = 128     // of a job in a batch, without its payload and url
)

// lineEvery is how often progress is printed when it cannot be drawn in place.
const lineEvery = 5 * time.Second

// ErrUnreachable says that the server never responded.
var ErrUnreachable = errors.New("load: the server does not answer")

// Run sends the jobs and reports. A line on out shows the progress.
//
// With a rate the schedule is open: each request has an instant at which it should start, and its latency counts from there, also when all connections
// were busy then. So a server that stalls gets no fewer requests and does not look better for it ("coordinated omission"). Without a rate each
// connection sends its next request after the last response.
//
// Run generates the ids. A request that failed, or got a 503, may have been accepted: Run repeats it a few times with the same ids, which doubles no
// job. With Wait it repeats after every 503.
//
// When ctx ends, Run returns the results so far and the cause. It gives up with [ErrUnreachable] when a request has failed for good and none has had a
// response yet.
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

func newTransport(opts Options) *http.Transport {
	return &http.Transport{
		MaxIdleConns:        opts.Concurrency,
		MaxIdleConnsPerHost: opts.Concurrency,
		MaxConnsPerHost:     opts.Concurrency,
		DisableCompression:  true,
	}
}
