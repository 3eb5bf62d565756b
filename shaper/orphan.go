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
// orphan. Of that it knows only what reading takes: its name, and how it is parted.
func (s *store) readable(ctx context.Context, name string) (*bucketState, error) {
	b, err := s.bucket(name)
	if err == nil || !admission.ValidName(name) {
		return b, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	k, keysErr := s.keysOf(ctx, name)
	if keysErr != nil {
		return nil, keysErr
	}
	orphan := &bucketState{Name: name, keys: k}
	values, askErr := s.redis.HMGet(ctx, orphan.keys.conf(), "rate_count", "flows").Result()
	switch {
	case askErr != nil:
		return nil, fmt.Errorf("bucket %q: read its settings: %w", name, askErr)
	case values[0] == nil:
		return nil, err
	}
	text, _ := values[1].(string)
	parted, convErr := strconv.Atoi(cmp.Or(text, "0"))
	if convErr != nil || parted < partedNot || parted > partedGroups {
		return nil, fmt.Errorf("bucket %q: its data is of a newer program", name)
	}
	settings := &Bucket{Name: name}
	if parted != partedNot {
		settings.Flow = &FlowSettings{}
	}
	if parted == partedGroups {
		settings.Group = &GroupSettings{}
	}
	orphan.keys = orphan.keys.as(parted)
	orphan.settings.Store(settings)
	return orphan, nil
}
