package store

import (
	"fmt"
	"slices"

	"github.com/tundish-io/tundish/shaper"
)

// samePool reports whether two descriptions of a pool are equal.
func samePool(p, other *shaper.Pool) bool {
	return p.Name == other.Name && p.Rate == other.Rate && poolBurst(p) == poolBurst(other) && p.MaxInFlight == other.MaxInFlight &&
		p.Revision == other.Revision && slices.Equal(p.Quotas, other.Quotas) && slices.Equal(p.Budgets, other.Budgets) && p.BudgetBurst == other.BudgetBurst
}

// samePools reports a pool with different settings in two buckets.
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

// tagOf returns the hash tag of a bucket's keys by its configuration.
func tagOf(b *shaper.Bucket) string {
	if b.Pool != nil {
		return b.Pool.Name
	}
	return b.KeyName()
}

func poolBurst(p *shaper.Pool) int64 { return max(p.Burst, 1) }
