package opsview

import (
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// PoolView is a pool with its buckets as JSON shows it. What the scripts obey is absent as
// long as nothing has used one of them.
type PoolView struct {
	Name        string       `json:"name"`
	Orphaned    bool         `json:"orphaned"` // no bucket of the configuration is in it
	Revision    *int64       `json:"revision,omitempty"`
	Rate        string       `json:"rate,omitempty"`
	Burst       int64        `json:"burst,omitempty"`
	Quotas      []string     `json:"quotas,omitempty"`
	InFlight    int64        `json:"in_flight"`               // of all its buckets
	MaxInFlight int64        `json:"max_in_flight,omitempty"` // absent where there is no such bound
	LastSlot    *time.Time   `json:"last_slot,omitempty"`     // of any of its buckets
	Buckets     []PoolBucket `json:"buckets"`
	Overrides   []Override   `json:"overrides"` // settings that were changed at run time

	Downstream *Downstream `json:"downstream,omitempty"` // what the answers to its buckets have changed; none if nothing
}

// PoolBucket is a bucket in a pool.
type PoolBucket struct {
	Name     string `json:"name"`
	Weight   int64  `json:"weight,omitempty"` // absent where nobody knows it yet
	InFlight int64  `json:"in_flight"`
	HasWork  bool   `json:"has_work"` // it takes its share now
}

// Override is a setting of a bucket or a pool that was changed at run time.
type Override struct {
	Setting    shaper.Setting `json:"setting"`
	Configured string         `json:"configured"`
	InForce    string         `json:"in_force"`
	By         string         `json:"by"`
	At         *time.Time     `json:"at,omitempty"`
}

// PoolViewOf shows a pool.
func PoolViewOf(p *operator.PoolDetails, orphaned bool) PoolView {
	view := PoolView{Name: p.Name, Orphaned: orphaned, InFlight: p.InFlight, LastSlot: instant(p.LastSlot),
		Buckets: make([]PoolBucket, len(p.Buckets)), Overrides: OverridesOf(p.Overrides),
		Downstream: DownstreamOf(p.Downstream, p.Now)}
	if !p.Rate.IsZero() {
		view.Rate, view.Burst, view.MaxInFlight = p.Rate.String(), p.Burst, p.MaxInFlight
		for _, quota := range p.Quotas {
			view.Quotas = append(view.Quotas, quota.String())
		}
	}
	if p.Configured {
		view.Revision = &p.Revision
	}
	for i, b := range p.Buckets {
		view.Buckets[i] = PoolBucket(b)
	}
	return view
}

// OverridesOf shows overrides, none as an empty list.
func OverridesOf(overrides []operator.Override) []Override {
	views := make([]Override, len(overrides))
	for i, override := range overrides {
		views[i] = Override{Setting: override.Setting, Configured: override.Configured, InForce: override.InForce, By: override.By, At: instant(override.At)}
	}
	return views
}

// instant writes a time in UTC. One after the year 9999 is absent: JSON cannot hold it.
func instant(t time.Time) *time.Time {
	t = t.UTC().Truncate(time.Millisecond)
	if t.IsZero() || t.Year() > 9999 {
		return nil
	}
	return &t
}
