package config

import (
	"slices"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/shaper"
)

func (s keySettings) key() apikey.Key {
	key := apikey.Key{Name: s.Name, Caller: s.Caller, Buckets: s.Buckets, Tier: s.Tier}
	key.Flows, key.Groups = append(key.Flows, s.Flows...), append(key.Groups, s.Groups...) // nil for []
	for _, sum := range s.SHA256 {
		key.SHA256 = append(key.SHA256, sum.sum())
	}
	for _, role := range s.Roles {
		key.Roles = append(key.Roles, apikey.Role(role))
	}
	return key
}

// complete fills in values that follow from other settings of a bucket and from the tables that it names. at is the place of the bucket.
func (l *loader) complete(b *Bucket, at place, s *settings) {
	b.Revision = s.Revision
	l.schedule(b, at)
	l.byWorker(b, at)
	_, b.DeliveryTimeout = b.timeout()
	if b.Flow != nil {
		b.Flow.DefaultURL = b.defaultURL()
		b.Flow.NeedsURL = b.Flow.MustExist && b.Worker == workerWebhook && b.Webhook.URL == ""
		b.Webhook.FlowURLs = b.Flow.NeedsURL
	}
	if b.Group != nil {
		b.Group.DefaultURL = b.defaultURL()
	}
	if i := slices.IndexFunc(s.Pools, func(p shaper.Pool) bool { return p.Name == b.PoolName }); i >= 0 {
		b.Pool = &s.Pools[i]
	}
	b.Callbacks = b.CallbackTo.callbacks()
}

// schedule sets max_attempts of a bucket with a schedule of retries, if the file does not: one attempt for each wait and one before.
func (l *loader) schedule(b *Bucket, at place) {
	attempts := b.Retry.MaxAttempts
	b.Retry = b.Retry.WithSchedule(b.Retry.Schedule...)
	if l.set(at.key("retry").key("max_attempts")) {
		b.Retry.MaxAttempts = attempts
	}
}

// limitsOf are the limits that a bucket names.
func limitsOf(names []string, limits []admission.Limit) []admission.Limit {
	var list []admission.Limit
	for _, name := range names {
		for _, limit := range limits {
			if limit.Name == name {
				list = append(list, limit)
			}
		}
	}
	return list
}
