package operator_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/operator"
)

// holdFlows has the downstream of every other flow hold it, and returns how many those are.
func holdFlows(t *testing.T, s *rig.Bench, names []string) (held int64) {
	t.Helper()
	until := time.Now().Add(time.Hour).UnixMicro()
	text := fmt.Sprintf("@%d,5000,1000000000,1,12,1,1,0,1,1,%d,1,%d,timeout ", until, until, until)
	pairs := make([]any, 0, 2*len(names))
	for i, name := range names {
		said := ""
		if i%2 == 0 {
			said = text
			held++
		}
		pairs = append(pairs, name, said+"0 0 - 0 1 0 0 .n")
	}
	if err := s.Redis.HSet(t.Context(), store.BucketKeys("b").Flows(), pairs...).Err(); err != nil {
		t.Fatal(err)
	}
	return held
}

// heldFlows are how many flows a downstream says anything of.
func heldFlows(t *testing.T, s *rig.Bench) (held int64) {
	t.Helper()
	states, err := s.Redis.HVals(t.Context(), store.BucketKeys("b").Flows()).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, state := range states {
		if codec.ParseFlowState(state).Downstream != "" {
			held++
		}
	}
	return held
}

// interrupter ends a context after a number of scripts.
type interrupter struct {
	left   int
	cancel context.CancelFunc
}

func (i *interrupter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (i *interrupter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (i *interrupter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if name := cmd.Name(); err == nil && (name == "evalsha" || name == "fcall") {
			if i.left--; i.left == 0 {
				i.cancel()
			}
		}
		return err
	}
}

func TestReleaseOfAllFlows(t *testing.T) {
	t.Parallel()
	for levels, s := range map[int]*rig.Bench{codec.LevelsFlows: rig.NewFlowing(t), codec.LevelsGroups: rig.NewGrouped(t)} {
		names := make([]string, 600) // several steps of HSCAN
		for i := range names {
			names[i] = codec.PathOf(levels, fmt.Sprint("g", i%7), fmt.Sprint("f", i))
		}
		held := holdFlows(t, s, names)
		b := s.Client.Op.As("anna").Bucket("b")

		ctx, cancel := context.WithCancel(t.Context())
		s.Redis.AddHook(&interrupter{10, cancel})
		first, err := b.ReleaseFlows(ctx)
		if left := heldFlows(t, s); !errors.Is(err, context.Canceled) || first == 0 || first+left != held {
			t.Errorf("interrupted: %d of %d are released and %d are left (%v)", first, held, left, err)
		}
		rest, err := b.ReleaseFlows(t.Context())
		if left := heldFlows(t, s); err != nil || first+rest != held || left != 0 {
			t.Errorf("%d and %d of %d are released and %d are left (%v)", first, rest, held, left, err)
		}
		if again, err := b.ReleaseFlows(t.Context()); again != 0 || err != nil {
			t.Errorf("released again: %d, %v", again, err)
		}
	}
	if n, err := rig.NewBench(t, rig.Bucket("b", 100)).Client.Op.As("anna").Bucket("b").ReleaseFlows(t.Context()); n != 0 || !errors.Is(err, operator.ErrNoFlows) {
		t.Errorf("without flows: %d, %v", n, err)
	}
}
