package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
)

// LearnedEstimates returns the learned estimates in Redis, by bucket. The buckets share round trips. It leaves out what it cannot read, and returns an
// error.
func (s *Store) LearnedEstimates(ctx context.Context, buckets ...string) (map[string]shaper.LearnedEstimates, error) {
	read := make([]shaper.LearnedEstimates, len(buckets))
	err := s.forEach(len(buckets), func(s *Store, i int) (err error) {
		read[i], err = s.learnedEstimates(ctx, buckets[i])
		return err
	})
	all := make(map[string]shaper.LearnedEstimates, len(buckets))
	for i, bucket := range buckets {
		if read[i] != nil {
			all[bucket] = read[i]
		}
	}
	return all, err
}

func (s *Store) learnedEstimates(ctx context.Context, bucket string) (shaper.LearnedEstimates, error) {
	b, err := s.Readable(ctx, bucket)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	cmd := redis.NewMapStringStringCmd(ctx, "hgetall", b.Keys.LearnedEstimates())
	if err := s.process(ctx, cmd); err != nil {
		return nil, fmt.Errorf("bucket %q: read its learned estimates: %w", bucket, err)
	}
	estimates := make(shaper.LearnedEstimates, len(cmd.Val()))
	for subject, stored := range cmd.Val() {
		number, text, _ := strings.Cut(stored, " ")
		if n, err := strconv.ParseInt(number, 10, 64); err == nil {
			text, caller := cutCaller(text)
			estimates[subject] = shaper.LearnedEstimate{Answers: n, Text: text, Caller: caller}
		}
	}
	return estimates, nil
}

// cutCaller splits the caller off the end of a stored estimate: see lua/store_learned_estimates.lua.
func cutCaller(stored string) (text, caller string) {
	at := strings.LastIndex(stored, " @")
	if at < 0 {
		return stored, ""
	}
	return stored[:at], stored[at+2:]
}

// StoreLearnedEstimates stores learned estimates in Redis, by bucket: see lua/store_learned_estimates.lua. The buckets share round trips.
func (s *Store) StoreLearnedEstimates(ctx context.Context, estimates map[string]shaper.LearnedEstimates) error {
	buckets := slices.Sorted(maps.Keys(estimates))
	return s.forEach(len(buckets), func(s *Store, i int) error {
		b, err := s.Bucket(buckets[i])
		if err != nil {
			return err
		}
		if err := estimates[b.Name].Validate(); err != nil {
			return fmt.Errorf("bucket %q: %w", b.Name, err)
		}
		args := []any{shaper.MaxLearnedEstimates}
		for subject, estimate := range estimates[b.Name] {
			args = append(args, subject, estimate.Answers, estimate.Text, estimate.Caller)
		}
		if _, err := s.RunConfigured(ctx, b, lua.StoreLearnedEstimates, b.Keys.Of(lua.StoreLearnedEstimates), args...); err != nil {
			return fmt.Errorf("bucket %q: store its learned estimates: %w", b.Name, err)
		}
		return nil
	})
}
