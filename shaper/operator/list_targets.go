package operator

import (
	"context"
	"fmt"
	"strconv"
)

// Parts of a listing: first flows or groups with jobs, then flows or groups with
// settings and no jobs.
const (
	partStates   = "j"
	partSettings = "s"
)

// list returns names of targets of the same kind that match, some of them, from a cursor on.
func (o *Operator) list(ctx context.Context, t target, match, cursor string, limit int) (names []string, next string, err error) {
	part, at := partStates, uint64(0)
	if cursor != "" {
		text := ""
		if part, text = cursor[:1], cursor[1:]; part != partStates && part != partSettings {
			return nil, "", &InvalidChangeError{t.bucket, fmt.Errorf("cursor: %q is none of ours", cursor)}
		}
		if at, err = strconv.ParseUint(text, 10, 64); err != nil {
			return nil, "", &InvalidChangeError{t.bucket, fmt.Errorf("cursor: %q is none of ours", cursor)}
		}
	}
	key := t.states()
	if part == partSettings {
		key = t.settings()
	}
	ctx, cancel := context.WithTimeout(ctx, o.store.Timeout)
	defer cancel()
	pairs, at, err := o.store.Redis.HScan(ctx, key, at, match, int64(min(max(limit, 1), 1000))).Result()
	if err != nil {
		return nil, "", fmt.Errorf("bucket %q: list its flows: %w", t.bucket, err)
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		names = append(names, pairs[i])
	}
	if part == partSettings {
		if names, err = o.without(ctx, t.states(), names); err != nil {
			return nil, "", fmt.Errorf("bucket %q: list its flows: %w", t.bucket, err)
		}
	}
	switch {
	case at != 0:
		next = part + strconv.FormatUint(at, 10)
	case part == partStates:
		next = partSettings + "0"
	}
	return names, next, nil
}

// without returns the names that are no fields of a hash.
func (o *Operator) without(ctx context.Context, key string, names []string) ([]string, error) {
	if len(names) == 0 {
		return nil, nil
	}
	there, err := o.store.Redis.HMGet(ctx, key, names...).Result()
	if err != nil {
		return nil, err
	}
	var others []string
	for i, name := range names {
		if there[i] == nil {
			others = append(others, name)
		}
	}
	return others, nil
}
