package shaper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
)

// Pool is a downstream that several buckets share. Slots obey its rate, its quotas and
// its bound over all of these, whatever dispatchers drain them, and each bucket's own too.
// Buckets that have work share it by [Bucket.Weight]; what one does not use, others do.
//
// Buckets of one pool live in one slot of a Redis Cluster. The zero value is not valid.
type Pool struct {
	Name string // as a bucket's, and none of a bucket in it

	Rate        admission.Rate
	Burst       int64            // of the pool; 0 means 1
	Quotas      []admission.Rate // as Bucket.Quotas
	MaxInFlight int64            // leases of all its buckets at a time; 0: only their own bounds

	// Revision orders configurations, as Bucket.Revision.
	Revision int64
}

// Validate reports every fault of the pool, joined, or nil. Each begins with the key of the configuration.
func (p *Pool) Validate() error { return errors.Join(p.faults("")...) }

// faults are those of the pool; each begins with the prefix and the key.
func (p *Pool) faults(prefix string) []error {
	var errs []error
	fail := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s%s: %s", prefix, key, fmt.Sprintf(format, args...)))
	}
	if !admission.ValidName(p.Name) {
		fail("name", "%q: want lower-case letters, digits, _ . and -, at most 63, the first a letter or digit", p.Name)
	}
	if p.Rate.IsZero() {
		fail("rate", "is missing: say how fast the pool leaks, such as \"50/s\"")
	} else if err := p.Rate.Validate(); err != nil {
		fail("rate", "%v", err)
	} else if p.Rate.Unit != admission.UnitRequests {
		fail("rate", "%q: only requests are paced in this version, not %s", p.Rate, p.Rate.Unit)
	} else if float64(p.Burst)/p.Rate.PerSecond() > MaxBurstTime.Seconds() {
		fail("burst", "%d: at %s it takes more than %d days to come back", p.Burst, p.Rate, int(MaxBurstTime.Hours()/24))
	}
	if p.Burst < 0 || p.Burst > MaxBurst {
		fail("burst", "%d: want 1 to %d", p.Burst, MaxBurst)
	}
	if p.MaxInFlight < 0 || p.MaxInFlight > MaxCapacity {
		fail("max_in_flight", "%d: want 0 to %d", p.MaxInFlight, MaxCapacity)
	}
	return append(errs, validateQuotas(prefix+"quotas", p.Quotas)...)
}

// samePool reports whether two descriptions of a pool say the same.
func samePool(p, other *Pool) bool {
	return p.Name == other.Name && p.Rate == other.Rate && poolBurst(p) == poolBurst(other) && p.MaxInFlight == other.MaxInFlight &&
		p.Revision == other.Revision && slices.Equal(p.Quotas, other.Quotas)
}

// samePools reports a pool of which two buckets say different things.
func samePools(buckets []Bucket) error {
	first := make(map[string]*Bucket)
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

// PoolWarnings lists what of the bucket can never be used, because its pool allows less.
func (b Bucket) PoolWarnings() []string {
	if b.Pool == nil {
		return nil
	}
	var warnings []string
	if p := b.Pool; b.Rate.PerSecond() > p.Rate.PerSecond() {
		warnings = append(warnings, fmt.Sprintf("rate: %s is more than the %s of its pool %q, which holds", b.Rate, p.Rate, p.Name))
	}
	if p := b.Pool; p.MaxInFlight > 0 && b.MaxInFlight > p.MaxInFlight {
		warnings = append(warnings, fmt.Sprintf("max_in_flight: %d is more than the %d of its pool %q, which holds", b.MaxInFlight, p.MaxInFlight, p.Name))
	}
	return warnings
}

// tagOf is what the keys of a bucket have in common.
func tagOf(b *Bucket) string {
	if b.Pool != nil {
		return b.Pool.Name
	}
	return b.Name
}

// configurePool writes what scripts obey of a bucket's pool. Each of its buckets does.
func (s *store) configurePool(ctx context.Context, b *Bucket) error {
	p := b.Pool
	if p == nil {
		return nil
	}
	reply, err := s.run(ctx, lua.Configure, []string{poolConf(p.Name)}, schemaVersion, p.Revision, wakeChannel, wakePool+p.Name,
		fieldRateCount, p.Rate.Count, fieldRatePer, p.Rate.Per.Microseconds(), "burst", poolBurst(p), "quotas", quotasText(p.Quotas),
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
		s.log.WarnContext(ctx, "a newer configuration of a pool is in force and is obeyed",
			"pool", p.Name, "own_revision", p.Revision, "revision", revision)
	case code == 2:
		return fmt.Errorf("pool %q: its data has schema %d, this program knows %d: use a newer program", p.Name, schema, schemaVersion)
	}
	return nil
}

// PoolInfo is a pool in numbers, as one of its buckets sees it.
type PoolInfo struct {
	Name        string
	Rate        admission.Rate // what the scripts obey
	Burst       int64
	MaxInFlight int64     // 0: none
	InFlight    int64     // of all its buckets
	LastSlot    time.Time // of any of them
	Weight      int64     // of the bucket
}

func readPoolInfo(r *lua.Reader) *PoolInfo {
	p := PoolInfo{Rate: admission.Rate{Count: r.Int(), Per: time.Duration(r.Int()) * time.Microsecond, Unit: admission.UnitRequests}}
	p.Burst, p.MaxInFlight, p.InFlight, p.LastSlot, p.Weight = r.Int(), r.Int(), r.Int(), instantOf(r.Int()), r.Int()
	return &p
}

// JobPool is what holds for the pool of a job's bucket.
type JobPool struct {
	Name                  string
	InFlight, MaxInFlight int64     // the bound is 0 if it has none
	RateFrees             time.Time // when its rate lets one of its buckets send next; zero: at once
	QuotaFrees            time.Time // when its quotas do
}

// readJobPool reads what inspect_job.lua says of the pool of the job's bucket.
func readJobPool(r *lua.Reader) *JobPool {
	return &JobPool{InFlight: r.Int(), MaxInFlight: r.Int(), RateFrees: instantOf(r.Int()), QuotaFrees: instantOf(r.Int())}
}

func poolBurst(p *Pool) int64 { return max(p.Burst, 1) }
