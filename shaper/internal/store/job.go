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
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

// Job returns the state of a job. The bucket may have been removed from the configuration, or live elsewhere.
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
	a, err := lua.ReadAnswer(reply)
	if err == nil && a.Int("state") == 0 {
		return shaper.JobInfo{}, fmt.Errorf("%w: %q in bucket %q", shaper.ErrNotFound, id, bucket)
	}
	info := shaper.JobInfo{ID: id, Bucket: bucket, Position: -1}
	if err == nil {
		err = fillJob(a, b, &info)
	}
	if err == nil {
		err = a.Err()
	}
	if err != nil {
		return shaper.JobInfo{}, fmt.Errorf("bucket %q: job %q: script inspect_job: %w", bucket, id, err)
	}
	return info, nil
}

// fillJob sets the fields of a known job from the reply of the script.
func fillJob(a *lua.Answer, b *Bucket, info *shaper.JobInfo) error {
	info.State = codec.StateOf(a.Int("state"))
	if a.Text("body") == "" {
		info.Owner = shaper.Owner{Mark: a.Text("caller")}
		return nil
	}
	if err := codec.FillJob(info, a.Text("body"), a.Text("meta")); err != nil {
		return err
	}
	codec.ReadAnswer(a, "", info)
	info.Pause = codec.ReadPause(a.Int("paused"), a.Text("paused_by"), a.Text("paused_reason"))
	info.LastAttempts = codec.Attempts(a.Text("attempts"))
	offset := a.Int("offset")
	info.Downstream, info.Quotas = downstreamIn(a, "", offset), codec.ReadQuotaUse(a.Text("quotas"))
	info.Budgets = codec.ReadBudgetUse(a.Text("budgets"))
	if reserves := a.Text("reserves"); reserves != "" {
		info.Reserves = shaper.ParseUnits(reserves)
	}
	if p := b.Settings.Load().Pool; p != nil {
		info.OfPool = &shaper.JobPool{Name: p.Name, Downstream: downstreamIn(a, "pool_", 0), Quotas: codec.ReadQuotaUse(a.Text("pool_quotas")), Budgets: codec.ReadBudgetUse(a.Text("pool_budgets"))}
		codec.ReadAnswer(a, "pool_", info.OfPool)
	}
	levels := a.Int("levels")
	if levels != codec.LevelsNone {
		info.OfFlow = readJobFlow(a, "flow_")
		info.OfFlow.Downstream = downstreamIn(a, "flow_", offset)
	}
	if levels == codec.LevelsGroups {
		info.OfGroup = readJobFlow(a, "group_")
	}
	instant := a.Int("instant")
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
	return nil
}

// Cancel runs cancel.lua: it cancels a job that waits or, if wanted is [shaper.StateDead], drops a dead letter. It returns the state of the job
// afterwards.
func (s *Store) Cancel(ctx context.Context, bucket, id string, wanted shaper.State) (shaper.State, error) {
	b, err := s.UseAny(ctx, bucket)
	if err != nil {
		return "", err
	}
	const otherFlow = -2 // the id became another job's between the two calls
	const notConfigured = -1
	var reply any
	for code, tries := int64(otherFlow), 0; code == otherFlow || code == notConfigured && tries < 2; {
		if code == notConfigured {
			tries++
			b.Configured.Store(false)
			if b, err = s.UseAny(ctx, bucket); err != nil {
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

// Probe finds out what is wrong with Redis, if anything: it pings, and runs a script that writes. A cluster counts as reachable if one node
// responds, although the script may not run on another. Two round trips.
func (s *Store) Probe(ctx context.Context) error {
	if err := s.Ping(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	_, err := s.Run(ctx, lua.Probe, []string{probeKey})
	if _, isCluster := s.Redis.(*redis.ClusterClient); isCluster {
		if failure := redisconn.FailureOf(err); failure != redisconn.Full && failure != redisconn.Forbidden {
			return nil
		}
	}
	return err
}

// probeKey is the key that a probe writes.
const probeKey = "tundish:{fleet}:probe"

// Ping checks that Redis responds: in a cluster, that any master does. One round trip.
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

// readJobFlow reads the state of a job's flow or group from the reply of inspect_job.lua.
func readJobFlow(a *lua.Answer, prefix string) *shaper.JobFlow {
	flow := &shaper.JobFlow{Disabled: codec.ReadDisabled(a.Text(prefix + "disabled")), Quotas: codec.ReadQuotaUse(a.Text(prefix + "quotas")), Budgets: codec.ReadBudgetUse(a.Text(prefix + "budgets"))}
	codec.ReadAnswer(a, prefix, flow)
	note := a.Text(prefix + "note")
	if flow.Disabled == nil || note != codec.FlowUnset && note != "" { // a disabled flow counts as paused
		flow.Pause = codec.ReadFlowPause(a.Int(prefix+"paused"), note)
	}
	return flow
}

// downstreamIn reads the downstream state of a scope from the reply of the script.
func downstreamIn(a *lua.Answer, prefix string, offset int64) *shaper.Downstream {
	rate := struct {
		Rate admission.Rate `lua:"rate"`
	}{}
	codec.ReadAnswer(a, prefix, &rate)
	return codec.ParseDownstream(a.Text(prefix+"downstream"), offset, rate.Rate)
}

const (
	// PurgeBatch is how many jobs one script of a purge removes: about a millisecond.
	PurgeBatch = 200

	// ScriptBytes are the bytes of bodies or results that one script reads or removes at most, for the same reason.
	ScriptBytes = 1 << 20
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
