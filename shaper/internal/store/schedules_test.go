package store_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
)

// sizes notes the largest command and the largest answer.
type sizes struct{ command, answer int }

func (s *sizes) note(cmd redis.Cmder) {
	n := 0
	for _, arg := range cmd.Args() {
		switch arg := arg.(type) {
		case string:
			n += len(arg)
		case []byte:
			n += len(arg)
		}
	}
	s.command = max(s.command, n)
	if scan, ok := cmd.(*redis.ScanCmd); ok {
		texts, _ := scan.Val()
		n = 0
		for _, text := range texts {
			n += len(text)
		}
		s.answer = max(s.answer, n)
	}
}

func (s *sizes) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *sizes) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		s.note(cmd)
		return err
	}
}

func (s *sizes) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			s.note(cmd)
		}
		return err
	}
}

// Schedules with large payloads go with their bucket into a pool in parts: no command and no answer has more than about a megabyte.
func TestLargeSchedulesChangeThePool(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client()
	b := rig.Bucket("b", 10)
	b.MaxPayload = 100_000
	for i := range 100 {
		b.Schedules = append(b.Schedules, shaper.Schedule{
			Name: fmt.Sprint("s", i), Cron: "0 2 * * *", Job: shaper.ScheduledJob{Payload: bytes.Repeat([]byte("x"), 60_000)},
		})
	}
	var largest sizes
	client.AddHook(&largest)
	mustJoin(t, client, b)
	joined := mustJoin(t, client, rig.In(rig.PoolNamed("vendor"), b))
	t.Logf("the largest command has %d bytes, the largest answer %d", largest.command, largest.answer)
	if most := 3 << 20 / 2; largest.command > most || largest.answer > most {
		t.Errorf("the largest command has %d bytes, the largest answer %d: want at most %d", largest.command, largest.answer, most)
	}
	if all, err := joined.Op.Schedules(t.Context()); err != nil || len(all) != len(b.Schedules) {
		t.Error(len(all), err)
	}
}
