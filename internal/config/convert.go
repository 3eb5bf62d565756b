package config

import (
	"slices"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/shaper"
)

func (s keySettings) key() httpapi.Key {
	key := httpapi.Key{Name: s.Name, Caller: s.Caller, Buckets: s.Buckets, Tier: s.Tier}
	key.Flows, key.Groups = append(key.Flows, s.Flows...), append(key.Groups, s.Groups...) // nil for []
	for _, sum := range s.SHA256 {
		key.SHA256 = append(key.SHA256, sum.sum())
	}
	for _, role := range s.Roles {
		key.Roles = append(key.Roles, httpapi.Role(role))
	}
	return key
}

func (s limitSettings) limit() admission.Limit {
	return admission.Limit{
		Name: s.Name, Algorithm: admission.Algorithm(s.Algorithm), Per: s.Per, Limit: s.Limit, Burst: s.Burst,
		Precision: s.Precision, MaxKeys: s.MaxKeys, Tiers: s.Tiers, Mode: admission.Mode(s.Mode),
		OnStoreFailure: admission.OnStoreFailure(s.OnStoreFailure), OnMissing: admission.OnMissing(s.OnMissing),
		SyncInterval: s.SyncInterval,
	}.WithDefaults()
}

func (s poolSettings) pool(revision int64) shaper.Pool {
	return shaper.Pool{Name: s.Name, Rate: s.Rate, Burst: s.Burst, Quotas: s.Quotas, MaxInFlight: s.MaxInFlight, Revision: revision}
}

// policy returns the policy, with max_attempts as it is in s.
func (s retrySettings) policy() shaper.RetryPolicy {
	p := shaper.RetryPolicy{
		MinBackoff: s.MinBackoff, MaxBackoff: s.MaxBackoff, MaxAge: s.MaxAge, KeepAttempts: s.KeepAttempts,
	}.WithSchedule(s.Schedule...)
	p.MaxAttempts = s.MaxAttempts
	return p
}

func (s *shedSettings) shed() shaper.Shed {
	if s == nil {
		return shaper.NoShedding
	}
	return shaper.Shed(*s)
}

// bucket returns the bucket with its pool and the limits that it names.
func (s bucketSettings) bucket(limits []admission.Limit, pools []shaper.Pool, revision int64) Bucket {
	b := Bucket{Worker: s.Worker, Webhook: s.Webhook, HTTP: s.HTTP, Asynq: s.Asynq, Statuses: s.Retry.Statuses, BatchFormat: s.batchFormat(), Bucket: shaper.Bucket{
		Name: s.Name, Rate: s.Rate, Burst: s.Burst,
		Capacity: s.Capacity, ScheduledCapacity: s.ScheduledCapacity, MaxInFlight: s.MaxInFlight,
		DedupeWindow: s.DedupeWindow, DedupeMax: s.DedupeMax, PermitTTL: s.PermitTTL, MaxPayload: int64(s.MaxPayload),
		Quotas: s.Quotas, PriorityAging: s.PriorityAging, Shed: s.Shed.shed(), Retry: s.Retry.policy(),
		Adapt: shaper.Adapt{Scope: shaper.Scope(s.Adapt.Scope), Hold: s.Adapt.Hold, MaxHold: s.Adapt.MaxHold, Floor: int(s.Adapt.Floor)},
		Breaker: shaper.Breaker{
			Failures: s.Breaker.Failures, OpenFor: s.Breaker.OpenFor, MaxOpen: s.Breaker.MaxOpen, DisableAfter: s.Breaker.DisableAfter, OnGone: shaper.OnGone(s.Breaker.OnGone),
		},
		Weight: s.Weight, Revision: revision, Callbacks: s.callbacks(), Batch: s.batch(),
		Results: shaper.ResultSettings{
			Retention: s.ResultRetention, Max: s.ResultsMax, Bytes: int64(s.ResultsBytes), MaxBody: int64(s.MaxResult),
		},
		DeadCapacity: s.DeadCapacity, DeadBytes: int64(s.DeadBytes), DeadRetention: s.DeadRetention, WhenDeadFull: shaper.WhenDeadFull(s.WhenDeadFull),
		Drain: s.Drain.drain(), Calendar: calendarOf(s.Calendar),
	}}
	_, b.DeliveryTimeout = b.timeout()
	if f := s.Flow; f != nil {
		b.Flow = &shaper.FlowSettings{
			Key: f.Key, DefaultURL: s.defaultURL(), Rate: f.Rate, Burst: f.Burst, Capacity: f.Capacity, MaxInFlight: f.MaxInFlight,
			Quotas: f.Quotas, MaxFlows: f.MaxFlows, MaxPerCaller: f.MaxPerCaller, ScheduledCapacity: f.ScheduledCapacity,
		}
	}
	if g := s.Group; g != nil {
		b.Group = &shaper.GroupSettings{
			Key: g.Key, DefaultURL: s.defaultURL(), Rate: g.Rate, Burst: g.Burst, Capacity: g.Capacity, MaxInFlight: g.MaxInFlight,
			Quotas: g.Quotas, ScheduledCapacity: g.ScheduledCapacity,
		}
	}
	if i := slices.IndexFunc(pools, func(p shaper.Pool) bool { return p.Name == s.Pool }); i >= 0 {
		b.Pool = &pools[i]
	}
	for _, name := range s.Limits {
		for _, limit := range limits {
			if limit.Name == name {
				b.Limits = append(b.Limits, limit)
			}
		}
	}
	return b
}
