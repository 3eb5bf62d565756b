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

// Lessons returns the learned estimates in Redis, by bucket. The buckets share round trips. It leaves out what it cannot read, and returns an
// error.
func (s *Store) Lessons(ctx context.Context, buckets ...string) (map[string]shaper.Lessons, error) {
	read := make([]shaper.Lessons, len(buckets))
	err := s.forEach(len(buckets), func(s *Store, i int) (err error) {
		read[i], err = s.lessonsOf(ctx, buckets[i])
		return err
	})
	all := make(map[string]shaper.Lessons, len(buckets))
	for i, bucket := range buckets {
		if read[i] != nil {
			all[bucket] = read[i]
		}
	}
	return all, err
}

func (s *Store) lessonsOf(ctx context.Context, bucket string) (shaper.Lessons, error) {
	b, err := s.Readable(ctx, bucket)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	cmd := redis.NewMapStringStringCmd(ctx, "hgetall", b.Keys.Lessons())
	if err := s.process(ctx, cmd); err != nil {
		return nil, fmt.Errorf("bucket %q: read its lessons: %w", bucket, err)
	}
	lessons := make(shaper.Lessons, len(cmd.Val()))
	for subject, stored := range cmd.Val() {
		number, text, _ := strings.Cut(stored, " ")
		if n, err := strconv.ParseInt(number, 10, 64); err == nil {
			text, caller := cutCaller(text)
			lessons[subject] = shaper.Lesson{Answers: n, Text: text, Caller: caller}
		}
	}
	return lessons, nil
}

// cutCaller splits the caller off the end of a stored estimate: see lua/learn.lua.
func cutCaller(stored string) (text, caller string) {
	at := strings.LastIndex(stored, " @")
	if at < 0 {
		return stored, ""
	}
	return stored[:at], stored[at+2:]
}

// Learn stores learned estimates in Redis, by bucket: see lua/learn.lua. The buckets share round trips.
func (s *Store) Learn(ctx context.Context, lessons map[string]shaper.Lessons) error {
	buckets := slices.Sorted(maps.Keys(lessons))
	return s.forEach(len(buckets), func(s *Store, i int) error {
		b, err := s.Bucket(buckets[i])
		if err != nil {
			return err
		}
		if err := lessons[b.Name].Validate(); err != nil {
			return fmt.Errorf("bucket %q: %w", b.Name, err)
		}
		args := []any{shaper.MaxLessons}
		for subject, lesson := range lessons[b.Name] {
			args = append(args, subject, lesson.Answers, lesson.Text, lesson.Caller)
		}
		if _, err := s.RunConfigured(ctx, b, lua.Learn, b.Keys.Of(lua.Learn), args...); err != nil {
			return fmt.Errorf("bucket %q: store its lessons: %w", b.Name, err)
		}
		return nil
	})
}
