package store

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// HaveJob returns which of these buckets have a job of this id, or remember one. It takes one round trip, and one more if this process has not
// used some of the buckets: it has to find out where they live.
func (s *Store) HaveJob(ctx context.Context, id string, buckets ...string) ([]string, error) {
	if err := s.IfClosed(); err != nil {
		return nil, err
	}
	live, err := s.LiveKeys(ctx, buckets...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	pipe := s.Redis.Pipeline()
	there := make([][2]*redis.BoolCmd, len(buckets))
	for i, bucket := range buckets {
		k := live[bucket]
		there[i] = [2]*redis.BoolCmd{pipe.HExists(ctx, k.Body(), id), pipe.HExists(ctx, k.Seen(), id)}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("look for job %q: %w", id, err)
	}
	var found []string
	for i, bucket := range buckets {
		if there[i][0].Val() || there[i][1].Val() {
			found = append(found, bucket)
		}
	}
	return found, nil
}
