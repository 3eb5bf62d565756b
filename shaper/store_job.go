package shaper

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/lua"
)

// job returns what is known of a job. The bucket may be one that has left the configuration, or is elsewhere.
func (s *store) job(ctx context.Context, bucket, id string) (JobInfo, error) {
	info, err := s.lookAtJob(ctx, bucket, id)
	if errors.Is(err, ErrNotFound) && s.strayed(ctx, bucket) {
		return s.lookAtJob(ctx, bucket, id)
	}
	return info, err
}

func (s *store) lookAtJob(ctx context.Context, bucket, id string) (JobInfo, error) {
	b, err := s.readable(ctx, bucket)
	if err != nil {
		return JobInfo{}, err
	}
	flows, err := s.flowsOf(ctx, b, id)
	if err != nil {
		return JobInfo{}, err
	}
	reply, err := s.run(ctx, lua.InspectJob, b.keys.forInspectJob(flows[0]), id, flows[0], b.levels(), b.keys.member)
	if err != nil {
		return JobInfo{}, fmt.Errorf("bucket %q: %w", bucket, err)
	}
	r := lua.NewReader(reply)
	if r.Left() == 0 && r.Err() == nil {
		return JobInfo{}, fmt.Errorf("%w: %q in bucket %q", ErrNotFound, id, bucket)
	}
	code, position, instant, metaText, body := r.Int(), r.Int(), r.Int(), r.Text(), r.Text()
	if r.Err() != nil {
		return JobInfo{}, fmt.Errorf("bucket %q: script inspect_job: %w", bucket, r.Err())
	}
	info := JobInfo{ID: id, Bucket: bucket, State: stateOf(code), Position: position}
	if body == "" {
		return info, nil
	}
	if err := fillJob(&info, body, metaText); err != nil {
		return JobInfo{}, fmt.Errorf("bucket %q: job %q: %w", bucket, id, err)
	}
	_ = r.Int() // now
	info.Pause = readPause(r.Int(), r.Text(), r.Text())
	info.InFlight, info.MaxInFlight, info.NextSlot = r.Int(), r.Int(), time.UnixMicro(r.Int())
	info.QuotaFrees = instantOf(r.Int())
	levels := r.Int()
	ofFlow, ofGroup, ofPool := readJobFlow(r), readJobFlow(r), readJobPool(r)
	if p := b.settings.Load().Pool; p != nil {
		ofPool.Name, info.OfPool = p.Name, ofPool
	}
	if levels != levelsNone {
		info.OfFlow = ofFlow
	}
	if levels == levelsGroups {
		info.OfGroup = ofGroup
	}
	if r.Err() != nil {
		return JobInfo{}, fmt.Errorf("bucket %q: script inspect_job: %w", bucket, r.Err())
	}
	at := time.UnixMicro(instant)
	switch info.State {
	case StateQueued:
		if instant > 0 {
			info.ETA = at
		}
	case StateScheduled, StateRetrying:
		info.Due = at
	case StateInFlight:
		info.Deadline = at
	case StateDead:
		info.Died = at
	}
	return info, nil
}

// cancel runs cancel.lua: it cancels a job that waits or, where wanted is [StateDead], drops a dead letter. It
// returns the state in which the job is then.
func (s *store) cancel(ctx context.Context, bucket, id string, wanted State) (State, error) {
	b, err := s.bucket(bucket)
	if err != nil {
		return "", err
	}
	const otherFlow = -2 // the id became another job's between the two questions
	const notConfigured = -1
	var reply any
	for code, tries := int64(otherFlow), 0; code == otherFlow || code == notConfigured && tries < 2; {
		if code == notConfigured {
			tries++
			b.configured.Store(false)
		}
		if err := s.configure(ctx, b); err != nil {
			return "", err
		}
		flows, err := s.flowsOf(ctx, b, id)
		if err != nil {
			return "", err
		}
		reply, err = s.run(ctx, lua.Cancel, b.keys.forCancel(flows[0]), id, codeOf(wanted), b.levels(), flows[0])
		if err != nil {
			return "", fmt.Errorf("bucket %q: %w", bucket, err)
		}
		code, _ = reply.(int64)
	}
	code, ok := reply.(int64)
	switch {
	case !ok:
		return "", fmt.Errorf("bucket %q: script cancel answered %v", bucket, reply)
	case code < 0:
		b.configured.Store(false)
		return "", fmt.Errorf("bucket %q: %w", bucket, errNotConfigured)
	case code == 0:
		return "", fmt.Errorf("%w: %q in bucket %q", ErrNotFound, id, bucket)
	}
	return stateOf(code), nil
}

// ping asks Redis for a sign of life: of a cluster, one of any master. One round
// trip.
func (s *store) ping(ctx context.Context) error {
	if err := s.ifClosed(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	cluster, ok := s.redis.(*redis.ClusterClient)
	if !ok {
		if err := s.redis.Ping(ctx).Err(); err != nil {
			return fmt.Errorf("ping redis: %w", err)
		}
		return nil
	}
	var alive atomic.Bool
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		err := master.Ping(ctx).Err()
		alive.CompareAndSwap(false, err == nil)
		return err
	})
	if err != nil && !alive.Load() {
		cluster.ReloadState(ctx)
		return fmt.Errorf("ping the masters of the cluster: %w", err)
	}
	return nil
}

// readJobFlow reads what inspect_job.lua says of the flow of a job, or of its group.
func readJobFlow(r *lua.Reader) *JobFlow {
	since, note := r.Int(), r.Text()
	flow := JobFlow{InFlight: r.Int(), MaxInFlight: r.Int(), RateFrees: instantOf(r.Int()), QuotaFrees: instantOf(r.Int())}
	flow.Pause = readFlowPause(since, note)
	return &flow
}

// readJobPool reads what inspect_job.lua says of the pool of the job's bucket.
func readJobPool(r *lua.Reader) *JobPool {
	return &JobPool{InFlight: r.Int(), MaxInFlight: r.Int(), RateFrees: instantOf(r.Int()), QuotaFrees: instantOf(r.Int())}
}

// Sizes of one chunk of a purge: a script of about a millisecond.
const (
	purgeBatch = 200
	purgeBytes = 1 << 20
)

// withTimeout returns the store with another timeout, for calls that touch this key.
func (s *store) withTimeout(ctx context.Context, key string, timeout time.Duration) *store {
	other := &store{redis: s.redis, timeout: s.timeout, log: s.log, metrics: s.metrics, buckets: s.buckets, order: s.order}
	switch client := s.redis.(type) {
	case *redis.Client:
		other.redis, other.timeout = client.WithTimeout(timeout), timeout
	case *redis.ClusterClient:
		if node, err := client.MasterForKey(ctx, key); err == nil {
			other.redis, other.timeout = node.WithTimeout(timeout), timeout
		}
	}
	return other
}
