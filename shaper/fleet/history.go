package fleet

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/lua"
)

// Point holds the counts of a bucket in five minutes.
type Point struct {
	At time.Time `json:"at"` // when they began
	Counts
}

// History returns the counts of a bucket in the last 24 hours over all processes, the oldest point first. Periods without counts are included. Counts
// appear within five seconds. It takes two round trips.
func (v *View) History(ctx context.Context, bucket string) ([]Point, error) {
	ctx, cancel := context.WithTimeout(ctx, v.timeout)
	defer cancel()
	now, err := v.redis.Time(ctx).Result()
	if err != nil {
		return nil, fmt.Errorf("read the history of bucket %q: %w", bucket, err)
	}
	last := now.UnixMicro() / Period.Microseconds()
	pipe := v.redis.Pipeline()
	part, short := inHistory(bucket)
	texts := make([]*redis.StringCmd, Points)
	for i := range texts {
		texts[i] = pipe.HGet(ctx, historyKey+strconv.FormatInt(last-int64(Points-1-i), 10), part)
	}
	lua.Exec(ctx, pipe) // a period without counts is an error of its command
	points := make([]Point, Points)
	for i, text := range texts {
		points[i].At = time.UnixMicro((last - int64(Points-1-i)) * Period.Microseconds()).UTC()
		if err := text.Err(); err != nil {
			if err != redis.Nil { //nolint:errorlint // as the library has it
				return nil, fmt.Errorf("read the history of bucket %q: %w", bucket, err)
			}
			continue
		}
		for line := range strings.Lines(text.Val()) {
			name, numbers, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			c := &points[i].Counts
			if name == short {
				_, _ = fmt.Sscanf(numbers, "%d %d %d %d", &c.Arrived, &c.Refused, &c.Departed, &c.Failed)
			}
		}
	}
	return points, nil
}
