package lua

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/redis/go-redis/v9"
)

// Numbers is [Script.Run] for a script whose reply is a flat array of integers. It allocates no object for each.
func (s *Script) Numbers(ctx context.Context, client Client, keys []string, args ...any) ([]int64, error) {
	cmd := s.numbers(ctx, "evalsha", s.made().sha, keys, args)
	err := client.Process(ctx, cmd)
	if notLoaded(err) {
		cmd = s.numbers(ctx, "eval", s.made().text, keys, args)
		err = client.Process(ctx, cmd)
	}
	if err != nil {
		return nil, fmt.Errorf("script %s: %w", s.name, err)
	}
	return cmd.Val(), nil
}

func (s *Script) numbers(ctx context.Context, verb string, script any, keys []string, args []any) *onceNumbers {
	return &onceNumbers{*redis.NewIntSliceCmd(ctx, words(verb, script, keys, args)...)}
}

// onceNumbers is [once] for a reply of integers.
type onceNumbers struct{ redis.IntSliceCmd }

// NoRetry stops retries of go-redis, also of its cluster client.
func (*onceNumbers) NoRetry() bool { return true }

// Microseconds converts a number of microseconds from a script. It clamps to 292 years either way, the range of Duration: times of Redis may lie
// further ahead.
func Microseconds(n int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Microsecond)
	return time.Duration(min(max(n, -most), most)) * time.Microsecond
}
