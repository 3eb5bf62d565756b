package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
)

const (
	flowDispatchers = 4
	flowRate        = 20_000 // departures a second in all
	flood           = 50_000 // jobs of the flow that has most
	flowTime        = 4 * time.Second
)

// flowRun is the result of a run with a number of flows.
type flowRun struct {
	departures, floods int
	most               int           // slots in any 100 ms
	late               time.Duration // of 99 % of departures at most
	calls, redis, own  float64       // commands a second; CPU time a departure, microseconds
}

// flows measures departures from many flows that all have something to send: their evenness and
// cost, and whether a flow that floods gets more than its turns.
func flows(ctx context.Context) ([]string, error) {
	var missed []string
	var first flowRun
	for _, n := range []int{1_000, 100_000, 1_000_000} {
		run, err := drainFlows(ctx, n)
		if err != nil {
			return nil, err
		}
		if first.departures == 0 {
			first = run
		}
		over := float64(run.most)/(flowRate/10) - 1
		cost := run.redis / first.redis
		turns := float64(run.departures) / float64(n)
		fmt.Printf("flows       %9d  %.0f departures/s of %d, at most %+.1f %% slots in 100 ms (bar +10 %%), p99 %s late; Redis %.0f commands/s, "+
			"%.1f µs a departure, %.2f times the first (bar 1.5); dispatchers %.1f µs; the flooding flow had %d of %.1f rounds\n",
			n, float64(run.departures)/flowTime.Seconds(), flowRate, 100*over, run.late.Round(100*time.Microsecond), run.calls, run.redis, cost, run.own, run.floods, turns)
		if over > .1 {
			missed = append(missed, fmt.Sprintf("%d flows: %+.1f %% in 100 ms, want at most +10 %%", n, 100*over))
		}
		if cost > 1.5 {
			missed = append(missed, fmt.Sprintf("%d flows: a departure costs Redis %.2f times what it costs with 1,000, want 1.5", n, cost))
		}
		if run.floods > int(turns)+2 {
			missed = append(missed, fmt.Sprintf("%d flows: the flooding flow had %d turns in %.1f rounds", n, run.floods, turns))
		}
	}
	return missed, nil
}

func flowBucket() shaper.Bucket { return withFlows(bucketOf("flows", flowRate)) }

// fillFlows gives each flow enough jobs for the whole measurement, within a bound, and one flow a flood.
func fillFlows(ctx context.Context, store redis.UniversalClient, b shaper.Bucket, n int) error {
	c, err := newClient(store, b)
	if err != nil {
		return err
	}
	each := max(2*flowRate*int(flowTime.Seconds())/n, 2)
	return fill(ctx, c, n*each+flood, func(i int) shaper.Job {
		flow := "flow-0"
		if i < n*each {
			flow = fmt.Sprint("flow-", i/each)
		}
		return shaper.Job{Bucket: b.Name, Flow: flow, Payload: []byte(`{}`)}
	})
}

// departureLog is the record of the workers.
type departureLog struct {
	mu     sync.Mutex
	at     []time.Time // slots: lateness is the machine's
	late   []time.Duration
	floods int
}

func (l *departureLog) note(_ context.Context, a *shaper.Attempt) shaper.Outcome {
	if err := a.Depart(); err != nil {
		return shaper.Returned("late")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at, l.late = append(l.at, a.Slot()), append(l.late, time.Since(a.Slot()))
	if a.Flow == "flow-0" {
		l.floods++
	}
	return shaper.Done(200)
}

// begin clears the record.
func (l *departureLog) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at, l.late, l.floods = nil, nil, 0
}

// all returns the record: the slots, how late each was, and how many are of the flow that floods.
func (l *departureLog) all() (at []time.Time, late []time.Duration, floods int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.at), slices.Clone(l.late), l.floods
}

// drainFlows runs the dispatchers for a while, on a server of their own.
func drainFlows(ctx context.Context, n int) (run flowRun, err error) {
	server, err := redistest.Run("")
	if err != nil {
		return run, err
	}
	defer server.Close()
	client, err := connect(server)
	if err != nil {
		return run, err
	}
	defer client.Close()
	b := flowBucket()
	if err := fillFlows(ctx, client, b, n); err != nil {
		return run, err
	}
	var departures departureLog
	running, stop := context.WithCancel(ctx)
	defer stop()
	stopped := make(chan error, flowDispatchers)
	for range flowDispatchers {
		dispatch, err := newRun(client, 2000, shaper.WorkerFunc(departures.note), b)
		if err != nil {
			return run, err
		}
		go func() { stopped <- dispatch(running) }()
	}
	wait(ctx, time.Second) // the horizon finds its length
	departures.begin()
	callsBefore, cpuBefore, err := spent(ctx, client)
	if err != nil {
		return run, err
	}
	ownBefore := processorTime()
	wait(ctx, flowTime)
	times, late, floods := departures.all()
	own := processorTime() - ownBefore
	calls, cpu, err := spent(ctx, client)
	if err != nil {
		return run, err
	}
	stop()
	for range flowDispatchers {
		err = errors.Join(err, <-stopped)
	}
	if len(times) == 0 {
		return run, errors.Join(err, errors.New("nothing left"))
	}
	count := float64(len(times))
	slices.Sort(late)
	return flowRun{
		late:       at(late, 99),
		departures: len(times), floods: floods, most: mostWithin(times, 100*time.Millisecond),
		calls: (calls - callsBefore) / flowTime.Seconds(), redis: (cpu - cpuBefore) * 1e6 / count, own: float64(own.Microseconds()) / count,
	}, err
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// mostWithin is the most of all windows of a length.
func mostWithin(times []time.Time, window time.Duration) (most int) {
	slices.SortFunc(times, time.Time.Compare)
	first := 0
	for i, at := range times {
		for at.Sub(times[first]) >= window {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// spent returns the client commands that Redis has run, and its CPU time in seconds.
func spent(ctx context.Context, client redis.UniversalClient) (calls, cpu float64, err error) {
	info, err := client.Info(ctx, "commandstats", "cpu").Result()
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(info) {
		var n float64
		for _, script := range []string{"fcall", "evalsha", "eval"} {
			if _, err := fmt.Sscanf(line, "cmdstat_"+script+":calls=%f", &n); err == nil {
				calls += n
			}
		}
		for _, kind := range []string{"sys", "user"} {
			if _, err := fmt.Sscanf(line, "used_cpu_"+kind+":%f", &n); err == nil {
				cpu += n
			}
		}
	}
	return calls, cpu, nil
}

// processorTime returns the CPU time of this process.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
