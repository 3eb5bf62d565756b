package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

// samePool reports whether two descriptions of a pool say the same.
func samePool(p, other *shaper.Pool) bool {
	return p.Name == other.Name && p.Rate == other.Rate && poolBurst(p) == poolBurst(other) && p.MaxInFlight == other.MaxInFlight &&
		p.Revision == other.Revision && slices.Equal(p.Quotas, other.Quotas)
}

// samePools reports a pool of which two buckets say different things.
func samePools(buckets []shaper.Bucket) error {
	first := make(map[string]*shaper.Bucket)
	for i := range buckets {
		b := &buckets[i]
		if b.Pool == nil {
			continue
		}
		other := first[b.Pool.Name]
		if other == nil {
			first[b.Pool.Name] = b
		} else if !samePool(other.Pool, b.Pool) {
			return fmt.Errorf("bucket %q: pool %q: its settings differ from those that bucket %q gives", b.Name, b.Pool.Name, other.Name)
		}
	}
	return nil
}

// tagOf is what the keys of a bucket have in common.
func tagOf(b *shaper.Bucket) string {
	if b.Pool != nil {
		return b.Pool.Name
	}
	return b.Name
}

// ConfigurePool writes what scripts obey of a bucket's pool. Each of its buckets does.
func (s *Store) ConfigurePool(ctx context.Context, b *shaper.Bucket) error {
	p := b.Pool
	if p == nil {
		return nil
	}
	reply, err := s.Run(ctx, lua.Configure, []string{PoolConf(p.Name)}, schemaVersion, p.Revision, WakeChannel, WakePool+p.Name,
		FieldRateCount, p.Rate.Count, FieldRatePer, p.Rate.Per.Microseconds(), "burst", poolBurst(p), "quotas", codec.QuotasText(p.Quotas),
		"max_in_flight", p.MaxInFlight)
	if err != nil {
		return fmt.Errorf("pool %q: %w", p.Name, err)
	}
	r := lua.NewReader(reply)
	code, schema, revision := r.Int(), r.Int(), r.Int()
	switch {
	case r.Err() != nil:
		return fmt.Errorf("pool %q: script configure: %w", p.Name, r.Err())
	case code == 1:
		s.Log.WarnContext(ctx, "a newer configuration of a pool is in force and is obeyed",
			"pool", p.Name, "own_revision", p.Revision, "revision", revision)
	case code == 2:
		return fmt.Errorf("pool %q: its data has schema %d, this program knows %d: use a newer program", p.Name, schema, schemaVersion)
	}
	return nil
}

func poolBurst(p *shaper.Pool) int64 { return max(p.Burst, 1) }
