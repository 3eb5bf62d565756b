package load

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Options are the options of a run.
type Options struct {
	Server string // base URL of the API, such as http://127.0.0.1:8080
	Bucket string
	URL    string // the URL that jobs are delivered to; "": the bucket's
	Key    string // API key; "" sends none

	Priority string // of all jobs; "": the server's default
	Flow     string // of all jobs; "" names none
	Flows    int    // of this many flows, whose names are Flow with -1, -2 and so on, in turn; 0 is Flow alone

	Jobs        int           // to send in all
	Rate        float64       // jobs a second; 0 means as fast as possible
	Concurrency int           // requests at a time, each on a connection of its own
	Batch       int           // jobs in a request; 1 uses the endpoint for single jobs
	Size        int           // bytes of a payload, which is a JSON string
	Timeout     time.Duration // of one request

	// Wait repeats a job that was refused, or that Redis could not store, after the time that the server names, until it is admitted. Without Wait a
	// refusal is a result like any other, and a Redis that stays away is a failure.
	Wait bool
}

// DefaultOptions returns 1000 jobs of 256 bytes, as fast as 16 connections allow. Server and Bucket have no default.
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
	inRange("flows", o.Flows, 0, MaxFlows)
	if o.Flows > 0 && o.Flow == "" {
		fail("flows", "%d: name them by flow too", o.Flows)
	}
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

// flowOf names the flow of the nth job.
func (o Options) flowOf(n int64) string {
	if o.Flows == 0 {
		return o.Flow
	}
	return fmt.Sprintf("%s-%d", o.Flow, n%int64(o.Flows)+1)
}

// endpoint returns the URL of requests.
func (o Options) endpoint() string {
	endpoint := strings.TrimRight(o.Server, "/") + "/v1/buckets/" + url.PathEscape(o.Bucket) + "/jobs"
	if o.Batch > 1 {
		endpoint += "/batch"
	}
	return endpoint
}
