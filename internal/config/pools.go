package config

import (
	"errors"
	"slices"
	"strings"

	"github.com/tundish-io/tundish/shaper"
)

// pools checks that each pool is valid, whether a bucket names it or not.
func (l *loader) pools(s *settings) {
	names := map[string]place{}
	for i := range s.Pools {
		pool := &s.Pools[i]
		p := at("pools").element(i, pool.Name)
		l.unique(p, pool.Name, names)
		inRange(l, p.key("burst"), pool.Burst, 1, shaper.MaxBurst)
		l.failAll(p, pool.Validate())
	}
}

// besidePool returns the bucket's own faults, without the faults of its pool, which pools reports.
func besidePool(err error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	return errors.Join(slices.DeleteFunc(joined.Unwrap(), func(err error) bool { return strings.HasPrefix(err.Error(), "pool.") })...)
}

// sharing checks which pool a bucket names, and its share of it.
func (l *loader) sharing(p place, b Bucket, pools []string) {
	inRange(l, p.key("weight"), b.Weight, 1, shaper.MaxWeight)
	switch {
	case b.PoolName == "" && b.Weight != defaultBucket().Weight:
		l.fail(p.key("weight"), literal(b.Weight), "is a share of a pool, and the bucket names none: say which in pool, or leave this out")
	case b.PoolName != "" && !slices.Contains(pools, b.PoolName):
		l.fail(p.key("pool"), literal(b.PoolName), "no [[pools]] has this name%s", DidYouMean(b.PoolName, pools))
	case b.PoolName != "" && (b.PoolName == b.Name || b.PoolName == b.RenamedFrom):
		l.fail(p.key("pool"), literal(b.PoolName), "is the name of the bucket itself: call the pool something else")
	}
}

// warnOfPools warns of pools without an effect, and of the settings of their buckets without one.
func (c *Config) warnOfPools(warn func(string, ...any)) {
	used := map[string]bool{}
	for i, b := range c.Buckets {
		if b.Pool == nil {
			continue
		}
		used[b.Pool.Name] = true
		p := at("buckets").element(i, b.Name)
		for _, warning := range b.PoolWarnings() {
			key, _, _ := strings.Cut(warning, ":")
			if c.written(p.key(key)) { // a default is not worth a warning
				warn("%s.%s", p.shown, warning)
			}
		}
	}
	for i, pool := range c.Pools {
		if !used[pool.Name] {
			warn("%s: no bucket names it: it holds nothing back", at("pools").element(i, pool.Name).shown)
		}
	}
}
