package operator_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/stored"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/operator"
)

// holdFlows has the downstream of every other flow hold it, and returns how many those are.
func holdFlows(t *testing.T, s *rig.Bench, names []string) (held int64) {
	t.Helper()
	until := time.Now().Add(time.Hour).UnixMicro()
	open := stored.Downstream{Till: until, RateCount: 5000, RatePer: 1_000_000_000, Breaker: 1, Failures: 12, First: until, OpenFor: 1, ChangedAt: until, Reason: "timeout"}
	pairs := make([]any, 0, 2*len(names))
	for i, name := range names {
		flow := stored.Waiting(1)
		if i%2 == 0 {
			flow.Downstream = open.String()
			held++
		}
		pairs = append(pairs, name, flow.String())
	}
	must.OK(t, s.Redis.HSet(t.Context(), store.BucketKeys("b").Flows(), pairs...).Err())
	return held
}

// heldFlows are how many flows a downstream says anything of.
func heldFlows(t *testing.T, s *rig.Bench) (held int64) {
	t.Helper()
	states := must.Get(s.Redis.HVals(t.Context(), store.BucketKeys("b").Flows()).Result())(t)
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

// The log tells in a sentence what a release has ended, by the clock of Redis.
func TestReleaseIsLoggedInWords(t *testing.T) {
	t.Parallel()
	s := rig.NewFlowing(t)
	var log bytes.Buffer
	op := must.Get(operator.New(operator.Config{Timeout: rig.Patience, Redis: s.Redis, Buckets: []shaper.Bucket{s.Bucket}, Logger: slog.New(slog.NewTextHandler(&log, nil))}))(t)
	const ahead = 3 * time.Hour // the engine's clock
	at := s.Now.UTC().Truncate(time.Second)
	micros := at.Add(ahead).UnixMicro()
	keys := store.BucketKeys("b")
	s.Redis.HSet(t.Context(), keys.Pace(), "offset", ahead.Microseconds(), "down", stored.Downstream{Till: micros + 60_000_000, Breaker: 1, Failures: 10, Opened: micros, First: micros, ChangedAt: micros, Reason: "http_503"}.String())
	slowed := stored.Waiting(1)
	slowed.Downstream = stored.Downstream{RateCount: 5000, RatePer: 1_000_000_000, ChangedAt: micros, Reason: "http_429"}.String()
	s.Redis.HSet(t.Context(), keys.Flows(), "f", slowed.String())
	bucket := op.As("anna").Bucket("b")
	for release, want := range map[string]string{
		"the bucket": fmt.Sprintf(`before="circuit breaker open since %s (10 failures in a row, the last one http_503); the next probe may leave at %s" after=released`,
			at.Format("2006-01-02T15:04:05.000Z"), at.Add(time.Minute).Format("2006-01-02T15:04:05.000Z")),
		"the flow": `before="slowed to 5/s (http_429)" after=released`,
	} {
		log.Reset()
		was, err := false, error(nil)
		if release == "the bucket" {
			was, err = bucket.Release(t.Context())
		} else {
			was, err = bucket.Flow("f").Release(t.Context())
		}
		if err != nil || !was || !strings.Contains(log.String(), want) {
			t.Errorf("%s: %v, %v; logged is %s\nwant %s", release, was, err, log.String(), want)
		}
	}
}
