package shaper

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/tundish-io/tundish/admission"
)

// readable returns a bucket whose jobs may be looked at: one of the configuration
// or, for a round trip more, one that has left it and that Redis still knows, an
// orphan, or one that lives under another tag than the configuration says. Of these it
// knows only what reading takes: its name, and how it is parted.
func (s *store) readable(ctx context.Context, name string) (*bucketState, error) {
	b, unknown := s.bucket(name)
	if unknown == nil && b.configured.Load() || unknown != nil && !admission.ValidName(name) {
		return b, unknown
	}
	live, err := s.liveKeys(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case unknown == nil && live[name].prefix == b.keys.prefix:
		return b, nil
	}
	found, err := s.unconfigured(ctx, name, live[name])
	if found == nil && err == nil && unknown == nil {
		return b, nil
	}
	if found == nil && err == nil {
		err = unknown
	}
	return found, err
}

// unconfigured is a bucket as Redis knows it under these keys, nil if it does not.
func (s *store) unconfigured(ctx context.Context, name string, k keys) (*bucketState, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var values []any
	for _, aside := range []bool{false, true} { // also of one that is frozen
		k.aside = aside
		var err error
		if values, err = s.redis.HMGet(ctx, k.conf(), fieldRateCount, "flows").Result(); err != nil {
			return nil, fmt.Errorf("bucket %q: read its settings: %w", name, err)
		}
		if values[0] != nil {
			break
		}
	}
	if values[0] == nil {
		return nil, nil //nolint:nilnil // none is no fault
	}
	text, _ := values[1].(string)
	parted, err := strconv.Atoi(cmp.Or(text, "0"))
	if err != nil || parted < partedNot || parted > partedGroups {
		return nil, fmt.Errorf("bucket %q: its data is of a newer program", name)
	}
	settings := &Bucket{Name: name}
	if parted != partedNot {
		settings.Flow = &FlowSettings{}
	}
	if parted == partedGroups {
		settings.Group = &GroupSettings{}
	}
	if k.pool != "" {
		settings.Pool = &Pool{Name: k.pool}
	}
	k.aside = false // what nobody obeys now is for looking at only
	orphan := &bucketState{Name: name, keys: k.as(parted)}
	orphan.settings.Store(settings)
	return orphan, nil
}

// strayed reports whether a bucket, as it turns out, has been moved to another tag since this
// process last looked. It is looked for anew then.
func (s *store) strayed(ctx context.Context, name string) bool {
	b, err := s.bucket(name)
	if err != nil || !b.configured.Load() {
		return false
	}
	live, err := s.liveKeys(ctx, name)
	if err != nil || live[name].prefix == b.keys.prefix {
		return false
	}
	b.configured.Store(false)
	return true
}
