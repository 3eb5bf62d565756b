package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/webhook"
)

const (
	batchJobs    = 100
	batchCallers = 8
)

// batches measures calls of many jobs: into many flows, and by HTTP, against calls of as many
// into a bucket without flows.
func batches(ctx context.Context, server *redistest.Server, rounds int, length time.Duration) ([]string, error) {
	flows, err := batchesOf(ctx, server, rounds, length, withFlows(bucketOf("flows", 1)), func(c *client, b shaper.Bucket) (func(context.Context) error, func(), error) {
		return calls(c, b, true), func() {}, nil
	})
	if err != nil {
		return nil, err
	}
	missed := flows.check("jobs in, calls of 100 jobs of 100 flows", "without flows", .4)
	web, err := batchesOf(ctx, server, rounds, length, bucketOf("web", 1), overHTTP)
	if err != nil {
		return nil, err
	}
	return append(missed, web.check("jobs in, HTTP batches of 100", "Enqueue", .4)...), nil
}

// pair holds the results of two sides in each round, in jobs a second.
type pair struct{ ours, other []float64 }

func (p pair) check(name, other string, goal float64) []string {
	figures := fmt.Sprintf("%7.0f jobs/s   %s %7.0f jobs/s", median(p.ours), other, median(p.other))
	return atLeast(goal).check(name, figures, medianRatio(p.ours, p.other))
}

// batchesOf measures one way to enqueue into a bucket against plain calls into a plain one.
func batchesOf(ctx context.Context, server *redistest.Server, rounds int, length time.Duration, b shaper.Bucket,
	way func(*client, shaper.Bucket) (call func(context.Context) error, closer func(), err error),
) (pair, error) {
	store, err := connect(server)
	if err != nil {
		return pair{}, err
	}
	defer store.Close()
	plain := bucketOf("plain", 1)
	c, err := newClient(store, b, plain)
	if err != nil {
		return pair{}, err
	}
	call, closer, err := way(c, b)
	if err != nil {
		return pair{}, err
	}
	defer closer()
	side := func(call func(context.Context) error) func() (float64, error) {
		return func() (float64, error) {
			if err := store.FlushDB(ctx).Err(); err != nil { // a server of our own
				return 0, err
			}
			rate, err := hammer(ctx, batchCallers, length/2, func(int) func(context.Context) error { return call })
			return rate * batchJobs, err
		}
	}
	rates, err := alternate(rounds, side(call), side(calls(c, plain, false)))
	if err != nil {
		return pair{}, err
	}
	return pair{rates[0], rates[1]}, nil
}

// calls enqueues a hundred jobs in each call, each in a flow of its own or all without flows.
func calls(c *client, b shaper.Bucket, flows bool) func(context.Context) error {
	jobs := make([]shaper.Job, batchJobs)
	for i := range jobs {
		jobs[i] = shaper.Job{Bucket: b.Name, Payload: payload}
		if flows {
			jobs[i].Flow = fmt.Sprint("flow-", i)
		}
	}
	return func(ctx context.Context) error { return enqueueAll(ctx, c, jobs) }
}

// overHTTP serves the API on this machine and posts the same jobs to it.
func overHTTP(c *client, b shaper.Bucket) (func(context.Context) error, func(), error) {
	check := webhook.DefaultConfig()
	check.URL = "https://example.com/hooks/in"
	api := httptest.NewServer(httpapi.NewProducer(httpapi.ProducerConfig{
		Jobs: c, CheckJob: func(_ string, job *shaper.Job) error { return check.CheckJob(job) },
	}))
	body := bytes.Repeat(fmt.Appendf(nil, "{\"payload\":%s}\n", payload), batchJobs)
	url := api.URL + "/v1/buckets/" + b.Name + "/jobs/batch"
	hc := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: batchCallers}}
	call := func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			return err
		}
		r.Header.Set("Content-Type", "application/x-ndjson")
		answer, err := hc.Do(r)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err == nil && (answer.StatusCode != http.StatusOK || !bytes.Contains(text, []byte(`"admitted":100,`))) {
			err = fmt.Errorf("a batch was answered %s: %.200s", answer.Status, text)
		}
		return err
	}
	return call, func() { hc.CloseIdleConnections(); api.Close() }, nil
}
