package store

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

// Job returns what is known of a job. The bucket may be one that has left the configuration, or is elsewhere.
func (s *Store) Job(ctx context.Context, bucket, id string) (shaper.JobInfo, error) {
	info, err := s.lookAtJob(ctx, bucket, id)
	if errors.Is(err, shaper.ErrNotFound) && s.Strayed(ctx, bucket) {
		return s.lookAtJob(ctx, bucket, id)
	}
	return info, err
}

func (s *Store) lookAtJob(ctx context.Context, bucket, id string) (shaper.JobInfo, error) {
	b, err := s.Readable(ctx, bucket)
	if err != nil {
		return shaper.JobInfo{}, err
	}
	flows, err := s.FlowsOf(ctx, b, id)
	if err != nil {
		return shaper.JobInfo{}, err
	}
	reply, err := s.Run(ctx, lua.InspectJob, b.Keys.Of(lua.InspectJob, flows[0]), id, flows[0], b.Levels(), b.Keys.Member)
	if err != nil {
		return shaper.JobInfo{}, fmt.Errorf("bucket %q: %w", bucket, err)
	}
	r := lua.NewReader(reply)
	if r.Left() == 0 && r.Err() == nil {
		return shaper.JobInfo{}, fmt.Errorf("%w: %q in bucket %q", shaper.ErrNotFound, id, bucket)
	}
	code, position, instant, metaText, body := r.Int(), r.Int(), r.Int(), r.Text(), r.Text()
	if r.Err() != nil {
		return shaper.JobInfo{}, fmt.Errorf("bucket %q: script inspect_job: %w", bucket, r.Err())
	}
	info := shaper.JobInfo{ID: id, Bucket: bucket, State: codec.StateOf(code), Position: position}
	if body == "" {
		info.Owner = shaper.Owner{Mark: r.Text(), Before: r.Int() == 1}
		if r.Err() != nil {
			return shaper.JobInfo{}, fmt.Errorf("bucket %q: script inspect_job: %w", bucket, r.Err())
		}
		return info, nil
	}
	if err := codec.FillJob(&info, body, metaText); err != nil {
		return shaper.JobInfo{}, fmt.Errorf("bucket %q: job %q: %w", bucket, id, err)
	}
	info.Now = time.UnixMicro(r.Int())
	info.Pause = codec.ReadPause(r.Int(), r.Text(), r.Text())
	info.InFlight, info.MaxInFlight, info.NextSlot = r.Int(), r.Int(), time.UnixMicro(r.Int())
	info.QuotaFrees = codec.InstantOf(r.Int())
	levels := r.Int()
	ofFlow, ofGroup, ofPool := readJobFlow(r), readJobFlow(r), readJobPool(r)
	info.LastAttempts = codec.Attempts(r.Text())
	offset := r.Int()
	info.Downstream, ofFlow.Downstream, ofPool.Downstream = readDownstream(r, offset), readDownstream(r, offset), readDownstream(r, 0)
	info.Closed, info.Opens = r.Int() == 1, codec.InstantOf(r.Int())
	info.Owner.Before = r.Int() == 1
	for _, uses := range []*[]shaper.QuotaUse{&info.Quotas, &ofFlow.Quotas, &ofGroup.Quotas, &ofPool.Quotas} {
		*uses = codec.ReadQuotaUse(r.Text())
	}
	if p := b.Settings.Load().Pool; p != nil {
		ofPool.Name, info.OfPool = p.Name, ofPool
	}
	if levels != codec.LevelsNone {
		info.OfFlow = ofFlow
	}
	if levels == codec.LevelsGroups {
		info.OfGroup = ofGroup
	}
	if r.Err() != nil {
		return shaper.JobInfo{}, fmt.Errorf("bucket %q: script inspect_job: %w", bucket, r.Err())
	}
	at := time.UnixMicro(instant)
	switch info.State {
	case shaper.StateQueued:
		if instant > 0 {
			info.ETA = at
		}
	case shaper.StateScheduled, shaper.StateRetrying:
		info.Due = at
	case shaper.StateInFlight:
		info.Deadline = at
	case shaper.StateDead:
		info.Died = at
	}
	return info, nil
}

// Cancel runs cancel.lua: it cancels a job that waits or, where wanted is [shaper.StateDead], drops a dead letter. It
// returns the state in which the job is then.
func (s *Store) Cancel(ctx context.Context, bucket, id string, wanted shaper.State) (shaper.State, error) {
	b, err := s.Use(ctx, bucket)
	if err != nil {
		return "", err
	}
	const otherFlow = -2 // the id became another job's between the two questions
	const notConfigured = -1
	var reply any
	for code, tries := int64(otherFlow), 0; code == otherFlow || code == notConfigured && tries < 2; {
		if code == notConfigured {
			tries++
			b.Configured.Store(false)
			if b, err = s.Use(ctx, bucket); err != nil {
				return "", err
			}
		}
		flows, err := s.FlowsOf(ctx, b, id)
		if err != nil {
			return "", err
		}
		reply, err = s.Run(ctx, lua.Cancel, b.Keys.Of(lua.Cancel, flows[0]), id, codec.CodeOf(wanted), b.Levels(), flows[0])
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
		b.Configured.Store(false)
		return "", fmt.Errorf("bucket %q: %w", bucket, ErrNotConfigured)
	case code == 0:
		return "", fmt.Errorf("%w: %q in bucket %q", shaper.ErrNotFound, id, bucket)
	}
	return codec.StateOf(code), nil
}

// Ping asks Redis for a sign of life: of a cluster, one of any master. One round
// trip.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.IfClosed(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	cluster, ok := s.Redis.(*redis.ClusterClient)
	if !ok {
		if err := s.Redis.Ping(ctx).Err(); err != nil {
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
func readJobFlow(r *lua.Reader) *shaper.JobFlow {
	since, note := r.Int(), r.Text()
	flow := shaper.JobFlow{InFlight: r.Int(), MaxInFlight: r.Int(), RateFrees: codec.InstantOf(r.Int()), QuotaFrees: codec.InstantOf(r.Int())}
	flow.Disabled = codec.ReadDisabled(r.Text())
	if flow.Disabled == nil || note != codec.FlowUnset && note != "" { // a disabled flow counts as paused
		flow.Pause = codec.ReadFlowPause(since, note)
	}
	return &flow
}

// readJobPool reads what inspect_job.lua says of the pool of the job's bucket.
func readJobPool(r *lua.Reader) *shaper.JobPool {
	return &shaper.JobPool{InFlight: r.Int(), MaxInFlight: r.Int(), RateFrees: codec.InstantOf(r.Int()), QuotaFrees: codec.InstantOf(r.Int())}
}

// readDownstream reads what inspect_job.lua says of the downstream of a scope.
func readDownstream(r *lua.Reader, offset int64) *shaper.Downstream {
	text := r.Text()
	return codec.ParseDownstream(text, offset, readRate(r))
}

func readRate(r *lua.Reader) admission.Rate {
	return admission.Rate{Count: r.Int(), Per: time.Duration(r.Int()) * time.Microsecond, Unit: admission.UnitRequests}
}

// Sizes of one chunk of a purge: a script of about a millisecond.
const (
	PurgeBatch = 200
	PurgeBytes = 1 << 20
)

// WithTimeout returns the store with another timeout, for calls that touch this key.
func (s *Store) WithTimeout(ctx context.Context, key string, timeout time.Duration) *Store {
	other := *s
	switch client := s.Redis.(type) {
	case *redis.Client:
		other.Redis, other.Timeout = client.WithTimeout(timeout), timeout
	case *redis.ClusterClient:
		if node, err := client.MasterForKey(ctx, key); err == nil {
			other.Redis, other.Timeout = node.WithTimeout(timeout), timeout
		}
	}
	return &other
}
